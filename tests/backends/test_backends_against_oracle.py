"""Every backend, rule, operation and mask gives the oracle's output up to rounding, on small shapes.

In half precision the check decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import problem
from solved import (
    BACKENDS,
    QUICK,
    RULES,
    WITHOUT_GROUPS,
    Solved,
    refusal,
    solved,
    solved_by,
    supported,
    supported_in_turn,
)
from torch.nn.attention import flex_attention

from attnbench.backends import chunked, flex
from attnbench.backends import numpy as numpy_backend
from attnbench.cases.ids import parse_case
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
    "bool:per_head",
    "float:per_head+causal+padding",
    "float+causal+padding",
)
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}


def forms(operation: str, mask: str, dtype: str) -> list[str]:
    """Ids of any rule on the shapes; the last one is for a layer that gets keys from elsewhere."""
    found = []
    for shape, layer in list(zip(SHAPES, LAYERS, strict=True))[: 3 if operation == "multihead" else 2]:
        sizes = shape + (layer if operation == "multihead" else "")
        lengths = mask if mask != "padding:0" or shape.startswith("B1") else "padding:0,9"
        found.append(f"{operation}/{{}}/{sizes}/{lengths}/{dtype}")
    return found


def check(name: str, case: Solved) -> None:
    output = case.run(BACKENDS[name])
    assert output.dtype == case.inputs[0].dtype
    assert output.shape == case.expected.shape
    error = np.abs(output.numpy() - case.expected).max()
    assert error < TOLERANCE[case.case.dtype], f"{name} on {case.case}: off by {error:.3g}"


ASKED = [(mask, "float64") for mask in MASKS] + [(mask, "float32") for mask in MASKS[::3]]


@pytest.mark.parametrize("turn", range(len(ASKED)), ids=map("-".join, ASKED))
@pytest.mark.parametrize("name", QUICK)
def test_the_output_is_the_oracles(name: str, turn: int) -> None:
    """Every mask with every rule, each with every shape."""
    mask, dtype = ASKED[turn]
    for operation in BACKENDS[name].operations:
        cases = supported_in_turn(name, forms(operation, mask, dtype), turn)
        assert cases or name in {"nn_multihead_attention", *WITHOUT_GROUPS}
        for case in cases:
            check(name, case)


@pytest.mark.parametrize("mask", [*MASKS[:6], "padding:0,9", *MASKS[7:]])
def test_the_module_gives_the_oracles_output(mask: str) -> None:
    for sizes in ("H4-L17-D8-E32-bias", "H3-L17-D4-E12", "H4-Lq17-Lk33-D8-E32-bias", "H4-L9-D8-E32-cross"):
        check("nn_multihead_attention", solved(f"multihead/scaled_dot/B2-{sizes}/{mask}/float32"))


@pytest.mark.filterwarnings("ignore:.*flex_attention:UserWarning")
@pytest.mark.parametrize("mask", MASKS)
def test_flex_without_its_compiler_gives_the_oracles_output(
    mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        pytest.skip("this torch compiles flex_attention whatever it is asked")

    def uncompiled(function: Any, **options: object) -> Any:
        assert options == {"fullgraph": True, "dynamic": False}
        return function

    monkeypatch.setattr(torch, "compile", uncompiled)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(flex, "configure", lambda: None)
    operation = "multihead" if mask == MASKS[-1] else "attention"
    for case in supported("flex", forms(operation, mask, "float32")):
        check("flex", case)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["chunked", "numpy"])
def test_many_small_blocks_give_the_same(name: str, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "ELEMENTS", 1 << 10)
    monkeypatch.setattr(chunked, "LONGEST_COLS", 9)
    monkeypatch.setattr(chunked, "FEWEST_ROWS", 4)
    monkeypatch.setattr(numpy_backend, "ELEMENTS", 64)
    monkeypatch.setattr(numpy_backend, "FEWEST_ROWS", 3)
    for case in supported(name, forms("attention", mask, "float64")):
        check(name, case)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    "sizes", ["H1-L1-D1", "B2-H3-Lq1-Lk65-D13", "H3-Hkv1-Lq65-Lk64-D4", "H2-Lq64-Lk1-D8", "B3-H2-L2-D3-Dv7"]
)
def test_odd_sizes(name: str, sizes: str) -> None:
    both = (f"attention/{{}}/{sizes}", f"multihead/{{}}/{sizes}-E6")
    masks = ("none", "causal:lower_right")
    for case in supported(name, [f"{form}/{mask}/float64" for form in both for mask in masks]):
        check(name, case)


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(QUICK),
    rule=st.sampled_from(sorted(RULES)),
    sizes=st.tuples(*(st.integers(1, most) for most in (3, 3, 3, 20, 20, 9, 9))),
    mask=st.sampled_from(MASKS),
    layer=st.sampled_from(["", "-E7", "-E16-bias-cross", "-E5-noout-bias"]),
    seed=st.integers(0, 3),
)
def test_any_case(name: str, rule: str, sizes: tuple[int, ...], mask: str, layer: str, seed: int) -> None:
    B, Hkv, group, Lq, Lk, D, Dv = sizes
    text = f"B{B}-H{Hkv * group}-Hkv{Hkv}-Lq{Lq}-Lk{Lk}-D{D}-Dv{Dv}{layer}/{mask}/float64/seed{seed}"
    try:
        cases = supported(name, [f"{'multihead' if layer else 'attention'}/{rule}/{text}"])
    except BadCase:
        return
    for case in cases:
        output = case.run(BACKENDS[name]).numpy()
        np.testing.assert_allclose(output, np.asarray(case.expected, np.float64), rtol=0, atol=1e-12)


HALF = (
    "attention/{}/B2-H4-Hkv2-L33-D40/causal",
    "attention/{}/B1-H4-Lq24-Lk65-D32-Dv20/float",
    "multihead/{}/B2-H2-L24-D16-E32-bias/bool",
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("form", HALF)
@pytest.mark.parametrize("name", QUICK)
def test_rounding_explains_the_error(name: str, form: str, dtype: str) -> None:
    for text in (f"{form.format(rule)}/{dtype}" for rule in RULES):
        if refusal(BACKENDS[name], parse_case(text)) is None:
            assert problem(name, text, draws=2) == "", text


@pytest.mark.parametrize("name", [name for name in QUICK if "attention" in BACKENDS[name].operations])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_powers_of_two_on_features_of_v_come_out_exactly(name: str, dtype: str) -> None:
    """The check of timed calls relies on it: it changes the signs of values."""
    factors = torch.tensor([1, -1, 2, -2, 0.5, 4, -0.25, 8])
    for case in supported(name, [f"attention/{{}}/B2-H4-Hkv2-L16-D8/causal/{dtype}"]):
        call, (q, k, v) = BACKENDS[name].prepare(case.setup), case.inputs
        by = factors.to(v.dtype)
        with torch.inference_mode():
            assert torch.equal(call(q, k, v * by), call(q, k, v) * by), case.case.rule


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("size", [30.0, 1000.0])
def test_large_scores_neither_overflow_nor_lose_their_largest(name: str, size: float) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, 9, 8)) for _ in range(3))
    # Scores reach thousands; the largest of row 0 is at the first key, of row 1 at the last.
    q[:, :, 0], q[:, :, 1] = k[:, :, 0] * 9, k[:, :, 8] * 9
    case = solved_by("attention/dot/H2-L9-D8/float64", (q * size, k, v))
    if refusal(BACKENDS[name], case.case) is None:
        np.testing.assert_allclose(
            case.run(BACKENDS[name]).numpy(), np.asarray(case.expected, np.float64), atol=1e-11
        )
