"""Rounding in a coarser arithmetic is told from wrong maths of the same size: by limits, and by scatter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
from coarse_kernels import ROUNDINGS, coarse, coarse_kernels, cut_to_bits
from judged import Judge
from maths_tools import RULES
from right_kernels import Kernel
from torch import Tensor
from wrong_kernels import WRONG, attend, one_element, scale_off, score_lost

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import DELIVERIES, stress_inputs_of
from attnbench.types.arithmetic import ARITHMETICS, ASSUMED, UNIT, assumed, coarser
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES
from attnbench.verifier.errors import FEWEST_OFF, MOST_ALIKE

CASES = (
    "H4-Hkv2-Lq33-Lk17-D8/none", "H2-Lq64-Lk129-D64/causal:lower_right", "H1-Lq33-Lk80-D80/bool",
    "H2-Lq16-Lk385-D16/float", "H1-Lq1-Lk300-D64/none", "H2-Lq16-Lk4097-D16/none",
)  # fmt: skip
LONG = ("H2-Lq16-Lk385-D16/none", "H2-Lq16-Lk4097-D16/none", "H2-L129-D80/causal")


@cache
def judges(case: str, dtype: str = "float32") -> dict[str, Judge]:
    """By kind of inputs."""
    made = parse_case(f"attention/scaled_dot/{case}/{dtype}")
    kinds = [name for name in stress_inputs_of(made, RULES[made.rule]) if name not in DELIVERIES]
    draws = {1: 16}.get(made.Lq, 2)
    return {kind: Judge(made, draws=draws if kind == "normal" else 2, stress=kind) for kind in kinds}


def within(case: str, kernel: Kernel, arithmetic: str) -> float:
    """The largest share of the limits of an arithmetic, over the kinds of inputs."""
    kinds = {
        kind: judge
        for kind, judge in judges(case).items()
        if (kind, arithmetic) != ("unlikely_values", "int8")
    }
    return max(judge.share(kernel, arithmetic) for judge in kinds.values())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("arithmetic", ["tf32", "float16", "bfloat16", "int8", "float8_e4m3"])
def test_whatever_a_kernel_rounds_stays_within_the_limits(case: str, arithmetic: str) -> None:
    for name, kernel in coarse_kernels(arithmetic).items():
        assert within(case, kernel, arithmetic) < 0.75, name


@pytest.mark.parametrize("case", CASES)
def test_what_rounds_all_operands_to_bfloat16_is_not_taken_for_tf32(case: str) -> None:
    assert within(case, coarse_kernels("bfloat16")["qk weights v"], "tf32") > 1.2


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("arithmetic", ["tf32", "bfloat16"])
def test_errors_of_rounding_scatter_in_nearly_all_elements(case: str, arithmetic: str) -> None:
    normal = judges(case)["normal"]
    for name, kernel in coarse_kernels(arithmetic).items():
        found = normal.scatter(kernel)
        assert found.is_rounding, name
        assert found.alike < 0.8 * MOST_ALIKE, name
        assert found.off > 2 * FEWEST_OFF * found.count, name


def test_float32_inside_a_float64_case_is_rounding() -> None:
    normal = judges(CASES[0], "float64")["normal"]
    kernel = partial(coarse, ROUNDINGS["float32"], "qk v")
    assert normal.share(kernel, "float32") < 0.5 < normal.share(kernel)
    assert normal.scatter(kernel).is_rounding


def in_one_head(kernel: Kernel) -> Kernel:
    def made(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attend(setup, q, k, v)
        return torch.cat([out[:, :-1], kernel(setup, q, k, v)[:, -1:]], 1)

    return made


def off(by: Callable[[Tensor], Tensor]) -> Kernel:
    return lambda setup, q, k, v: by(attend(setup, q, k, v))


def every_thousandth(out: Tensor) -> Tensor:
    made = out.clone()
    made.view(-1)[::1000] *= 1.01
    return made


def last_row(out: Tensor) -> Tensor:
    return torch.cat([out[:, :, :-1], out[:, :, -1:] * (1 + 1 / 64)], 2)


SUBTLE: dict[str, Kernel] = {
    **{name: WRONG[name] for name in ("scale 1 % off", "scale -1 % off", "scale 0.1 % off")},
    **{name: WRONG[name] for name in ("first key lost", "last key lost", "a far key lost")},
    "scale 1 % off in one head": in_one_head(scale_off(0.01)),
    "scale 0.1 % off in one head": in_one_head(scale_off(0.001)),
    "last key lost in one head": in_one_head(score_lost(lambda n: slice(n - 1, n))),
    "one element in a thousand 1 % off": off(every_thousandth),
    "the largest element 1 % off": one_element(1.01),
    "the last row a 64th off": off(last_row),
    "all 0.5 % off": off(lambda out: out * 1.005),
}


@pytest.mark.parametrize("case", LONG)
def test_small_mistakes_are_no_rounding_at_any_length(case: str) -> None:
    kinds = judges(case)
    for name, kernel in SUBTLE.items():
        assert max(judge.share(kernel) for judge in kinds.values()) > 10, name
        hidden = any(within(case, kernel, one) <= 1 for one in assumed("float32"))
        assert not (hidden and kinds["normal"].scatter(kernel).is_rounding), name


@pytest.mark.parametrize("case", LONG)
def test_a_mistake_in_every_element_repeats_with_the_numbers(case: str) -> None:
    normal = judges(case)["normal"]
    for name in ("scale 1 % off", "scale 0.1 % off", "all 0.5 % off"):
        assert normal.scatter(SUBTLE[name]).alike > 0.99, name


def test_a_mistake_is_found_among_rounding_that_is_smaller() -> None:
    """A scale that is 1 % off in TF32: most of the error repeats."""

    def both(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return coarse(ROUNDINGS["tf32"], "qk weights v", setup, q * 1.01, k, v)

    assert not judges(LONG[0])["normal"].scatter(both).is_rounding


def test_operands_that_are_cut_off_are_not_assumed() -> None:
    """All numbers become smaller, as with a wrong factor: such a backend has to declare its arithmetic."""
    kernel = partial(coarse, partial(cut_to_bits, 10), "qk weights v")
    normal = judges(CASES[1])["normal"]
    assert within(CASES[1], kernel, "tf32") < 1
    assert not normal.scatter(kernel).is_rounding


def test_what_is_assumed_of_a_dtype_rounds_far_more_than_the_dtype() -> None:
    assert {dtype: tuple(assumed(dtype)) for dtype in DTYPES} == {
        "float64": ASSUMED, "float32": ("tf32", "bfloat16"), "bfloat16": (), "float16": (),
    }  # fmt: skip
    assert sorted(ARITHMETICS, key=UNIT.__getitem__) == list(ARITHMETICS)
    assert coarser("bfloat16", "float16")
    assert not coarser("tf32", "float16")
    assert not coarser("", "float64")
