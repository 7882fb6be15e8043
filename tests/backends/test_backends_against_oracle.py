"""Every backend, rule, operation and mask on small shapes: the oracle's output to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solved import BACKENDS, QUICK, RULES, refusal, solved

from attnbench.backends import chunked
from attnbench.backends import numpy as numpy_backend
from attnbench.types.errors import BadCase

SHAPES = ("B2-H4-Hkv2-Lq17-Lk33-D8", "B1-H3-Lq33-Lk17-D8-Dv5", "B2-H4-Hkv1-L16-D16")
LAYERS = ("-E32-bias", "-E24-noout", "-E32-bias-cross")
MASKS = (
    "none",
    "causal",
    "causal:lower_right",
    "window:5",
    "causal:lower_right+window:4",
    "padding",
    "padding:0",
    "bool",
    "float",
    "float+causal+padding",
)
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}


def texts(operation: str, mask: str, dtype: str) -> list[str]:
    """Ids of every rule on every shape."""
    found = []
    for shape, layer in zip(SHAPES, LAYERS, strict=True):
        sizes = shape + (layer if operation == "multihead" else "")
        lengths = mask if mask != "padding:0" or shape.startswith("B1") else "padding:0,9"
        found += [f"{operation}/{rule}/{sizes}/{lengths}/{dtype}" for rule in RULES]
    return found


def check(name: str, text: str) -> None:
    case = solved(text)
    output = case.run(BACKENDS[name])
    assert output.dtype == case.inputs[0].dtype
    assert output.shape == case.expected.shape
    error = np.abs(output.numpy() - case.expected).max()
    assert error < TOLERANCE[case.case.dtype], f"{name} on {text}: off by {error:.3g}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("operation", ["attention", "multihead"])
@pytest.mark.parametrize("name", QUICK)
def test_the_output_is_the_oracles(name: str, operation: str, mask: str, dtype: str) -> None:
    ran = 0
    for text in texts(operation, mask, dtype):
        if refusal(BACKENDS[name], solved(text).case) is None:
            check(name, text)
            ran += 1
    can = operation in BACKENDS[name].operations and name != "nn_multihead_attention"
    assert ran > 0 or not can, "nothing was compared"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("mask", [*MASKS[:-4], "padding:0,9", *MASKS[-3:]])
@pytest.mark.parametrize(
    "sizes",
    ["B2-H4-L17-D8-E32-bias", "B2-H3-L17-D4-E12", "B2-H4-Lq17-Lk33-D8-E32-bias", "B2-H4-L9-D8-E32-cross"],
)
def test_the_module_gives_the_oracles_output(sizes: str, mask: str, dtype: str) -> None:
    check("nn_multihead_attention", f"multihead/scaled_dot/{sizes}/{mask}/{dtype}")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["chunked", "numpy"])
def test_many_small_blocks_give_the_same(name: str, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "ELEMENTS", 1 << 10)
    monkeypatch.setattr(chunked, "LONGEST_COLS", 9)
    monkeypatch.setattr(chunked, "FEWEST_ROWS", 4)
    monkeypatch.setattr(numpy_backend, "ELEMENTS", 64)
    monkeypatch.setattr(numpy_backend, "FEWEST_ROWS", 3)
    for text in texts("attention", mask, "float64"):
        check(name, text)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    "sizes", ["H1-L1-D1", "B2-H3-Lq1-Lk65-D13", "H7-Hkv1-Lq129-Lk64-D4", "H2-Lq64-Lk1-D8", "B3-H2-L2-D3-Dv7"]
)
def test_odd_sizes(name: str, sizes: str) -> None:
    for operation, layer in (("attention", ""), ("multihead", "-E6")):
        for rule in RULES:
            for mask in ("none", "causal:lower_right"):
                text = f"{operation}/{rule}/{sizes}{layer}/{mask}/float64"
                if refusal(BACKENDS[name], solved(text).case) is None:
                    check(name, text)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(QUICK),
    rule=st.sampled_from(sorted(RULES)),
    B=st.integers(1, 3),
    Hkv=st.integers(1, 3),
    group=st.integers(1, 3),
    lengths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    widths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    mask=st.sampled_from(MASKS),
    layer=st.sampled_from(["", "-E7", "-E16-bias-cross", "-E5-noout-bias"]),
    seed=st.integers(0, 3),
)
def test_any_case(
    name: str, rule: str, B: int, Hkv: int, group: int, lengths: tuple[int, int], widths: tuple[int, int],
    mask: str, layer: str, seed: int,
) -> None:  # fmt: skip
    sizes = f"B{B}-H{Hkv * group}-Hkv{Hkv}-Lq{lengths[0]}-Lk{lengths[1]}-D{widths[0]}-Dv{widths[1]}{layer}"
    operation = "multihead" if layer else "attention"
    try:
        case = solved(f"{operation}/{rule}/{sizes}/{mask}/float64/seed{seed}")
    except BadCase:
        return
    if refusal(BACKENDS[name], case.case) is None:
        output = case.run(BACKENDS[name]).numpy()
        np.testing.assert_allclose(output, np.asarray(case.expected, np.float64), rtol=0, atol=1e-12)
