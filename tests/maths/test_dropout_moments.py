"""Moments against all masks there are, one by one; limits against distributions that are known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from maths_tools import RULES, small_case, wide_activations, wide_parameters
from scipy import stats

from attnbench.oracle.moments import in_groups, solve_moments
from attnbench.oracle.solve import finish, heads_for, solve, solve_weights
from attnbench.types.case import Layer
from attnbench.types.record import DropoutNumbers
from attnbench.verifier.tally import (
    Dropping,
    Tally,
    dropout_calls,
    judge_tally,
    keep_chances,
    spread_limits,
)


@pytest.mark.parametrize(
    "layer", [None, Layer(5, bias=True), Layer(5, out=False)], ids=["attention", "multihead", "no output"]
)
@pytest.mark.parametrize("rule", ["scaled_dot", "concat_linear"])
def test_moments_are_those_over_all_masks(rule: str, layer: Layer | None) -> None:
    case = replace(small_case(rule, layer=layer), B=1, H=2, Hkv=1, Lq=2, Lk=3, dropout=0.3)
    parameters, sources = wide_parameters(case), wide_activations(case)
    args = (case, RULES[rule], parameters, sources)
    mean, weights = solve(*args), solve_weights(*args).astype(float)
    moments = solve_moments(*args, mean)
    heads = heads_for(*args, np.arange(2), np.float64)
    first = second = fourth = 0.0
    values = np.repeat(heads.v, 2, axis=1)
    # One query at a time, which has 2 heads of 3 keys: 64 masks; both queries get the same, rows stand alone.
    for bits in product([0, 1], repeat=6):
        mask = np.array(bits).reshape(1, 2, 1, 3)
        chance = 0.7 ** sum(bits) * 0.3 ** (6 - sum(bits))
        out = in_groups(case, finish(heads, weights * mask / 0.7 @ values))
        first = first + chance * out
        second = second + chance * np.square(out - moments.mean)
        along = np.einsum("bgrf,bgrf->bgr", moments.directions, out - moments.mean)
        fourth = fourth + chance * np.stack([along**2, along**4])
    dropping = Dropping(0.3, 0.7)
    variance = dropping.variance * moments.squares
    np.testing.assert_allclose(first, moments.mean, atol=1e-12)
    np.testing.assert_allclose(second, moments.variance, atol=1e-12)
    expected = np.stack(
        [variance, 3 * variance**2 + dropping.excess * dropping.variance**2 * moments.fourths]
    )
    np.testing.assert_allclose(fourth, expected, atol=1e-12)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_one_weight_in_numbers(p: float) -> None:
    dropping = Dropping(p, 1 - p)
    x = np.array([1 / (1 - p), 0.0]) - 1
    chances = np.array([1 - p, p])
    assert dropping.scale == pytest.approx(0)
    assert dropping.variance == pytest.approx(p / (1 - p))
    assert dropping.variance == pytest.approx(float(chances @ x**2))
    assert 3 + dropping.excess == pytest.approx(float(chances @ x**4) / dropping.variance**2)
    steps = np.linspace(-50, 50, 2001)
    proxy = dropping.proxy * dropping.variance
    assert (np.exp(np.outer(steps, x) - steps[:, None] ** 2 * proxy / 2) @ chances <= 1 + 1e-12).all()


@pytest.mark.parametrize("count", [1, 30, 1000, 30000])
def test_limits_of_normal_numbers_are_beyond_their_quantiles_and_not_far(count: int) -> None:
    least, most = spread_limits(np.array([float(count)]), np.array([3.0]), 1.0, 25.0)
    chance = math.exp(-25)
    low, high = stats.chi2.ppf(chance, count) / count, stats.chi2.isf(chance, count) / count
    assert least[0] <= low
    assert high <= most[0] <= 1 + 2.2 * (high - 1)


def test_limits_of_one_weight_are_beyond_its_quantiles() -> None:
    p, calls, depth = 0.1, 400, 20.0
    dropping = Dropping(p, 1 - p)
    limit = math.sqrt(2 * dropping.proxy * dropping.variance * depth / calls)
    dropped = np.arange(calls + 1)
    mean = (1 - dropped / calls) / (1 - p) - 1
    chances = stats.binom.pmf(dropped, calls, p)
    assert chances[mean > limit].sum() <= math.exp(-depth)
    assert chances[mean < -limit].sum() <= math.exp(-depth)
    square = (dropped + (calls - dropped) * (p / (1 - p)) ** 2) / calls / dropping.variance
    least, most = spread_limits(np.array([400.0]), np.array([3 + dropping.excess]), dropping.proxy, depth)
    assert chances[square > most].sum() <= math.exp(-depth)
    assert chances[square < least].sum() <= math.exp(-depth)


def test_bytes_that_kernels_draw_count_as_right() -> None:
    assert keep_chances(0.5) == [0.5]
    assert keep_chances(0.1) == [0.9, 230 / 256, 231 / 256]
    assert keep_chances(1e-4) == [1 - 1e-4]


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_masks_that_calls_share_are_named_whatever_they_are_and_right_ones_pass(p: float) -> None:
    """One mask also shifts the mean by chance. The reason must not depend on that."""
    case = replace(small_case(), Lq=16, Lk=16, dropout=p)
    args = (case, RULES[case.rule], wide_parameters(case), wide_activations(case))
    mean, weights = solve(*args), solve_weights(*args).astype(float)
    moments = solve_moments(*args, mean)
    values = np.repeat(args[-1][2], case.group, axis=1)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        reasons = []
        for masks in (1, 3, 48):
            kept = rng.random((masks, *weights.shape)) >= p
            tally = Tally(case, moments)
            for call in range(48):
                tally.add(weights * kept[call % masks] / (1 - p) @ values)
            reasons.append(judge_tally(tally, rms_limit=1e-6, max_limit=1e-5)[1])
        assert reasons[0].startswith("different calls do not drop weights independently"), seed
        assert reasons[1].startswith("different calls do not drop weights independently"), seed
        assert reasons[2] == "", seed


def test_the_limits_of_the_variance_are_those_of_one_weight_and_wider_by_rounding() -> None:
    """With one key each square of a right deviation is 1 at p = 1/2, so its fourth moment is 1 too."""
    case = replace(small_case(), Lq=16, Lk=1, dropout=0.5, dtype="float64")
    args = (case, RULES[case.rule], wide_parameters(case), wide_activations(case))
    mean = solve(*args)
    rng = np.random.default_rng(1)

    def judged(low: float, high: float, rms_limit: float) -> tuple[DropoutNumbers, str]:
        tally = Tally(case, solve_moments(*args, mean))
        for _ in range(64):
            tally.add(mean * rng.choice([low, high], (*mean.shape[:3], 1)))
        numbers, problem = judge_tally(tally, rms_limit=rms_limit, max_limit=1e-5)
        assert numbers is not None
        return numbers, problem

    numbers, problem = judged(0, 2, 1e-9)
    least = 1 - math.sqrt(2 * math.log(14 / 1e-9) / (64 * mean[..., 0].size))
    assert problem == ""
    assert numbers.p == pytest.approx(0.5)
    assert numbers.p_least == pytest.approx(least / (1 + least))
    wider, problem = judged(0, 2, 0.05)
    assert problem == ""
    assert wider.p_least < numbers.p_least - 0.01
    assert wider.p_most > numbers.p_most + 0.01
    few, problem = judged(0.5, 1.5, 1e-9)
    assert few.p == pytest.approx(0.2)
    assert problem.startswith("the variance of 64 outputs is 0.25 times that of dropout 0.5 (")
    assert problem.endswith(" is allowed), as of dropout 0.2")


def test_the_limit_of_the_mean_is_that_of_one_weight() -> None:
    """With one key and p = 1/2 each output is its answer times 0 or 2, a number of variance 1."""
    case = replace(small_case(), Lq=16, Lk=1, dropout=0.5, dtype="float64")
    args = (case, RULES[case.rule], wide_parameters(case), wide_activations(case))
    mean = solve(*args)
    rng = np.random.default_rng(1)
    drawn = rng.choice([0.0, 2.0], (64, *mean.shape[:3], 1))
    limit = math.sqrt(2 * math.log(14 / 1e-9) / (64 * mean[..., 0].size))

    def problem(shift: float) -> str:
        tally = Tally(case, solve_moments(*args, mean))
        for each in drawn:
            tally.add(mean * (each - drawn.mean() + 1 + shift))
        return judge_tally(tally, rms_limit=1e-9, max_limit=1e-5)[1]

    assert problem(0.95 * limit) == ""
    assert problem(1.05 * limit).startswith("the mean of 64 outputs is 1.")


def test_outputs_whose_exact_answer_is_zero_have_no_scale() -> None:
    case = replace(small_case(), Lq=16, Lk=2, dropout=0.5, dtype="float64")
    q, k, v = wide_activations(case)
    v[:, :, 1] = -v[:, :, 0]
    args = (case, RULES[case.rule], wide_parameters(case), (q, np.zeros_like(k), v))
    moments = solve_moments(*args, solve(*args))
    weights = np.random.default_rng(1).choice([0.0, 1.0], (64, *q.shape[:3], 2))
    tally = Tally(case, moments)
    for each in weights:
        tally.add(each @ np.repeat(v, case.group, axis=1))
    assert judge_tally(tally, rms_limit=1e-9, max_limit=1e-5)[1] == ""


def test_so_many_calls_are_compared_as_give_32768_rows() -> None:
    case = small_case(B=2, H=4, Hkv=4, Lq=64)
    assert dropout_calls(case) == 32768 // (2 * 4 * 64)
    assert dropout_calls(case, rows=16) == 32768 // (2 * 4 * 16)
    # One projection of all heads makes rows of a layer's output.
    assert dropout_calls(replace(case, operation="multihead", layer=Layer(5))) == 32768 // (2 * 64)
    assert dropout_calls(replace(case, Lq=10**6)) == 32
    assert dropout_calls(replace(case, Lq=1)) == 1024
