from __future__ import annotations

import numpy as np
import pytest
import torch
from maths_tools import setup_of, tensors
from scipy import stats

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import EPS
from attnbench.types.arithmetic import SUM_ERROR
from attnbench.types.case import Dtype
from attnbench.verifier.errors import scale_of
from attnbench.verifier.gradients import few, gradient_scale, summed
from attnbench.worker.gradients import plain_errors

MANY = np.random.default_rng(0).standard_normal(100_000)


@pytest.mark.parametrize(
    ("left", "before", "dtype", "units"),
    [
        (1, 1.8, "float32", 1),
        # One that cancels counts in units of what it is left of; what has vanished depends on the dtype.
        (1e-3, 1, "float32", 0.5),
        (0, 1, "float32", 4),
        (1e-8, 1, "float32", 4),
        (1e-3, 1, "bfloat16", 4),
        (1e-8, 1, "float64", 0.5),
    ],
)
def test_gradients_count_in_units_of_themselves_or_of_what_they_are_left_of(
    left: float, before: float, dtype: Dtype, units: float
) -> None:
    scale, one = gradient_scale([left * MANY], [before * MANY], dtype), scale_of([MANY])
    assert scale.rms == pytest.approx(units * one.rms, rel=1e-3)
    assert scale.largest == pytest.approx(units * one.largest, rel=1e-3)


def test_of_few_numbers_more_is_allowed_and_draws_count_together() -> None:
    one = np.ones(1)
    assert gradient_scale([one], [one], "float32").rms == pytest.approx(3)
    assert gradient_scale([one] * 8, [one] * 8, "float32").rms == pytest.approx(2**0.5)
    # A sink acts through the denominators alone: held, nothing reaches it.
    assert gradient_scale([one], [0 * one], "float32").rms == pytest.approx(3)


def test_nothing_at_all_has_no_scale() -> None:
    assert gradient_scale([np.zeros(4)], [np.zeros(4)], "float32").largest == 0


@pytest.mark.parametrize(
    ("text", "part", "unit"),
    [
        ("attention/cosine/B2-H2-Lq5-Lk40-D8/float32", "rule.beta", 2 * (8 + 0.15 * (2 * 5 * 40) ** 0.5)),
        ("multihead/dot/B2-H2-Lq5-Lk40-D8-E8-bias/float64", "b_q", 2 * (8 + 0.15 * (2 * 5) ** 0.5)),
        ("attention/dot/B2-H6-Hkv2-Lq50-Lk100-D8/float32", "q", 8 + 0.15 * 150**0.5),
        ("attention/dot/B2-H6-Hkv2-Lq50-Lk100-D8/float32", "k", 8 + 0.15 * 150**0.5),
        ("multihead/dot/B3-H2-Lq50-Lk100-D8-E8/float32", "w_q", 8 + 0.15 * 150**0.5),
        # In half precision sums are in float32.
        ("attention/cosine/B2-H2-Lq5-Lk40-D8/bfloat16", "rule.beta", 2),
        ("attention/cosine/B2-H2-Lq5-Lk40-D8/bfloat16", "q", 1),
    ],
)
def test_sums_may_be_added_in_any_order(text: str, part: str, unit: float) -> None:
    assert summed(parse_case(f"{text}/both"), part) == pytest.approx(unit)


@pytest.mark.parametrize("count", [100, 3000])
def test_the_error_of_a_sum_is_what_its_formula_says(count: int) -> None:
    numbers = np.random.default_rng(0).standard_normal((2000, count)).astype(np.float32)
    exact = numbers.sum(1, dtype=np.float64)
    off = np.cumsum(numbers, axis=1, dtype=np.float32)[:, -1] - exact
    unit = EPS["float32"] * scale_of([exact]).rms
    assert scale_of([off]).rms / unit == pytest.approx(SUM_ERROR * count**0.5, rel=0.1)


def test_few_normal_numbers_stay_within_twice_what_is_allowed_for_their_count() -> None:
    for count in range(1, 400):
        assert stats.chi2.sf(count * (2 * few(count)) ** 2, count) <= 3e-9


@pytest.mark.parametrize(("H", "upstreams"), [(1, 8), (4, 8), (8, 4), (12, 3), (32, 1)])
def test_errors_of_few_numbers_are_measured_for_several_upstreams(H: int, upstreams: int) -> None:
    case = parse_case(f"attention/sinks/H{H}-Lq9-Lk9-D4/none/float32/both")
    a, b, c = tensors(case)
    upstream = torch.randn(1, H, 9, 4, generator=torch.Generator().manual_seed(0))
    errors = plain_errors(setup_of(case), (a, b, c), upstream)
    assert errors["rule.sink"].shape == ((H,) if upstreams == 1 else (upstreams, H))
    assert errors["q"].shape == a.shape
    assert len(errors["rule.sink"].unique()) >= upstreams, "not the same errors again"
