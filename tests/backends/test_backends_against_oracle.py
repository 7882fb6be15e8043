"""Every backend, rule, operation and mask on small shapes gives the oracle's output to rounding.

In half precision the check decides. The same cases find common mistakes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import problem
from solved import BACKENDS, QUICK, RULES, Solved, refusal, solved

from attnbench.backends import chunked
from attnbench.backends import numpy as numpy_backend
from attnbench.kit.attention import masked_softmax
from attnbench.kit.masks import additive_mask, empty_rows, plus_bias
from attnbench.kit.scores import scores_of
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


HALF = (
    "attention/{}/B2-H4-Hkv2-L33-D40/causal",
    "attention/{}/B1-H4-Lq24-Lk65-D32-Dv20/float",
    "multihead/{}/B2-H2-L24-D16-E32-bias/bool",
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("form", HALF)
@pytest.mark.parametrize("name", QUICK)
def test_rounding_explains_the_error(name: str, form: str, dtype: str) -> None:
    for rule in RULES:
        text = f"{form.format(rule)}/{dtype}"
        if refusal(BACKENDS[name], solved(text).case) is None:
            assert problem(name, text, draws=2) == "", text


Kernel = Callable[[Solved, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
FOUND = 1e-6


def right_scores(case: Solved, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return scores_of(case.setup.scoring)(q, k, slice(0, case.case.Lk))


def finish(case: Solved, scores: torch.Tensor, v: torch.Tensor, *, leave_out: str = "") -> torch.Tensor:
    """Bias, mask, softmax, values, with one part left out or done wrongly."""
    c, scoring = case.case, case.setup.scoring
    added = None if leave_out == "mask" else additive_mask(c, torch.float64, "cpu")
    if leave_out == "-inf" and added is not None:
        added = added.clamp_min(-3)
    if leave_out != "bias":
        added = plus_bias(added, scoring, slice(0, c.Lq), slice(0, c.Lk), torch.float64)
    empty = None if leave_out == "empty rows" else empty_rows(c, "cpu")
    sink = None if leave_out == "sink" else scoring.sink
    if leave_out == "order" and added is not None:
        weights = masked_softmax(scores, None, None, sink).masked_fill(added == -torch.inf, 0)
    else:
        weights = masked_softmax(scores, added, empty, sink)
    heads = torch.arange(c.H) % c.Hkv if leave_out == "groups" else torch.arange(c.H) // c.group
    if leave_out == "last key":
        weights = weights * (torch.arange(c.Lk) < max(1, c.Lk - 1))
    return weights @ v[:, heads]


def with_scale(factor: float) -> Kernel:
    return lambda case, q, k, v: finish(case, right_scores(case, q * factor, k), v)


def without(part: str) -> Kernel:
    return lambda case, q, k, v: finish(case, right_scores(case, q, k), v, leave_out=part)


KERNELS: dict[str, Kernel] = {
    "right": without(""),
    "another scale": with_scale(1.001),
    "no mask": without("mask"),
    "a mask that isn't -inf": without("-inf"),
    "mask after the softmax": without("order"),
    "no bias": without("bias"),
    "no sink": without("sink"),
    "NaN in empty rows": without("empty rows"),
    "heads in the wrong groups": without("groups"),
    "the last key forgotten": without("last key"),
    "zeros": lambda case, q, k, v: torch.zeros(case.expected.shape, dtype=q.dtype),
    "mean of v": lambda case, q, k, v: finish(case, right_scores(case, q, k) * 0, v),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_wrong_kernel_is_off_somewhere_and_the_right_one_nowhere(kernel: str) -> None:
    worst = 0.0
    for mask in MASKS:
        for text in texts("attention", mask, "float64"):
            case = solved(text)
            output = KERNELS[kernel](case, *case.inputs).numpy()
            error = np.abs(output - case.expected).max()
            worst = max(worst, float("inf") if np.isnan(error) else float(error))
    assert (worst > FOUND) == (kernel != "right"), f"off by {worst:.3g}"
