"""Limits follow from how sums are rounded: right orders pass at every length, wrong kernels are far off."""

from __future__ import annotations

import pytest
from judged import Judge
from maths_tools import RULES
from summation import ORDERS
from wrong_kernels import WRONG

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import DELIVERIES, stress_inputs_of
from attnbench.types.case import DTYPES
from attnbench.verifier.errors import rounding_unit

ASKED = [
    *((dtype, length, "none") for dtype in DTYPES for length in (16, 300)),
    *(("float32", length, "none") for length in (2048, 16384)),
    *(("float32", 300, mask) for mask in ("causal:lower_right", "window:40", "bool", "float")),
]


def judges(length: int, dtype: str = "float32", mask: str = "none") -> dict[str, Judge]:
    case = parse_case(f"attention/scaled_dot/H1-Lq{16 if length <= 300 else 4}-Lk{length}-D16/{mask}/{dtype}")
    kinds = [name for name in stress_inputs_of(case, RULES[case.rule]) if name not in DELIVERIES]
    return {kind: Judge(case, draws=2 if length <= 300 else 1, stress=kind) for kind in kinds}


@pytest.mark.parametrize(("dtype", "length", "mask"), ASKED)
def test_every_order_of_summation_stays_within_three_quarters_of_its_limits(
    dtype: str, length: int, mask: str
) -> None:
    for kind, judge in judges(length, dtype, mask).items():
        for name, kernel in ORDERS.items():
            assert judge.share(kernel) < 0.75, (kind, name)


@pytest.mark.parametrize("length", [16, 2048])
def test_wrong_kernels_are_a_hundred_times_beyond_a_limit_in_float32(length: int) -> None:
    found = judges(length)
    for name, kernel in WRONG.items():
        assert max(judge.share(kernel) for judge in found.values()) > 100, name


def test_the_unit_grows_with_sums_and_scores_in_wide_dtypes_alone() -> None:
    for dtype in ("float32", "float64"):
        assert rounding_unit(dtype, 0) == 8
        assert rounding_unit(dtype, 4096) == pytest.approx(8 + 0.15 * 64)
        assert rounding_unit(dtype, 0, 1000) == 1008
    assert rounding_unit("bfloat16", 1 << 14, 1000) == rounding_unit("float16", 1 << 14, 1000) == 1
