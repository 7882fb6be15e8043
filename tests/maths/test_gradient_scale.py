from __future__ import annotations

import numpy as np
import pytest
import torch
from maths_tools import RULES, setup_of, tensor
from scipy import stats

from attnbench.cases.ids import parse_case
from attnbench.check.errors import SUM_ERROR, scale_of
from attnbench.check.gradients import few, gradient_scale, plain_errors, summed
from attnbench.inputs.draw import EPS, draw_activations

MANY = np.random.default_rng(0).standard_normal(100_000)


def test_an_ordinary_gradient_counts_in_units_of_itself() -> None:
    scale = gradient_scale([MANY], [1.8 * MANY], "float32")
    own = scale_of([MANY])
    assert scale.rms == pytest.approx(own.rms, rel=1e-3)
    assert scale.largest == pytest.approx(own.largest, rel=1e-3)


def test_one_that_cancels_counts_in_units_of_what_it_is_left_of() -> None:
    before = scale_of([MANY])
    partly = gradient_scale([1e-3 * MANY], [MANY], "float32")
    assert partly.rms == pytest.approx(0.5 * before.rms, rel=1e-3)
    for left in (0.0, 1e-8):
        wholly = gradient_scale([left * MANY], [MANY], "float32")
        assert wholly.rms == pytest.approx(4 * before.rms, rel=1e-3)
        assert wholly.largest == pytest.approx(4 * before.largest, rel=1e-3)


def test_what_has_vanished_depends_on_the_dtype() -> None:
    before = scale_of([MANY])
    assert gradient_scale([1e-3 * MANY], [MANY], "bfloat16").rms == pytest.approx(4 * before.rms, rel=1e-3)
    assert gradient_scale([1e-8 * MANY], [MANY], "float64").rms == pytest.approx(0.5 * before.rms, rel=1e-3)


def test_of_few_numbers_more_is_allowed_and_draws_count_together() -> None:
    one = np.ones(1)
    assert gradient_scale([one], [one], "float32").rms == pytest.approx(3)
    assert gradient_scale([one] * 8, [one] * 8, "float32").rms == pytest.approx(2**0.5)
    # A sink acts through the denominators alone: held, nothing reaches it.
    assert gradient_scale([one], [0 * one], "float32").rms == pytest.approx(3)


def test_nothing_at_all_has_no_scale() -> None:
    assert gradient_scale([np.zeros(4)], [np.zeros(4)], "float32").largest == 0


@pytest.mark.parametrize(
    ("text", "part", "terms"),
    [
        ("attention/cosine/B2-H2-Lq5-Lk40-D8/none/float32/both", "rule.beta", 2 * 5 * 40),
        ("multihead/dot/B2-H2-Lq5-Lk40-D8-E8-bias/none/float64/both", "b_q", 2 * 5),
    ],
)
def test_a_sum_over_rows_may_be_added_in_any_order(text: str, part: str, terms: int) -> None:
    case = parse_case(text)
    assert summed(case, part) == pytest.approx(2 * (8 + 0.15 * terms**0.5))


def test_every_gradient_may_be_a_sum_in_any_order() -> None:
    attention = parse_case("attention/dot/B2-H6-Hkv2-Lq50-Lk100-D8/none/float32/both")
    assert summed(attention, "q") == summed(attention, "k") == pytest.approx(8 + 0.15 * 150**0.5)
    layer = parse_case("multihead/dot/B3-H2-Lq50-Lk100-D8-E8/none/float32/both")
    assert summed(layer, "w_q") == pytest.approx(8 + 0.15 * 150**0.5)


def test_half_precision_is_summed_in_float32() -> None:
    case = parse_case("attention/cosine/B2-H2-Lq5-Lk40-D8/none/bfloat16/both")
    assert summed(case, "rule.beta") == 2
    assert summed(case, "q") == 1


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
    a, b, c = (tensor(x, "float32") for x in draw_activations(case, RULES["sinks"], 1, 0))
    upstream = torch.randn(1, H, 9, 4, generator=torch.Generator().manual_seed(0))
    errors = plain_errors(setup_of(case), (a, b, c), upstream)
    assert errors["rule.sink"].shape == ((H,) if upstreams == 1 else (upstreams, H))
    assert errors["q"].shape == a.shape
    assert len(errors["rule.sink"].unique()) >= upstreams, "not the same errors again"
