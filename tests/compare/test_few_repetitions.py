"""Ratios of three to eight repetitions: Student's t with a floor under the spread."""

from __future__ import annotations

from math import exp

import pytest

from attnbench.stats.tests import FLOOR, ratio_interval, ratio_p_value, tail, time_interval


@pytest.mark.parametrize(
    ("t", "freedom", "beyond"),
    [
        (12.706, 1, 0.05), (4.303, 2, 0.05), (3.182, 3, 0.05), (4.604, 4, 0.01), (4.032, 5, 0.01),
        (5.959, 6, 0.001), (2.365, 7, 0.05), (636.62, 1, 0.001), (0.0, 3, 1.0),
    ],
)  # fmt: skip
def test_student_s_t_as_printed_in_tables(t: float, freedom: int, beyond: float) -> None:
    assert tail(t, freedom) == pytest.approx(beyond, rel=1e-3)


def test_a_worked_example() -> None:
    """Mean 1.4 and spread 0.2, so the standard error is 0.2 / sqrt(3), and t = 12.12 with 2 degrees.

    Of 2 degrees, 1 - t / sqrt(t² + 2) = 0.00674 lies beyond t; for 0.004 that is 15.77.
    """
    logs = [1.2, 1.4, 1.6]
    assert ratio_p_value(logs) == pytest.approx(0.00674, rel=1e-3)
    found = ratio_interval(logs)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((exp(1.4 - 1.821), exp(1.4 + 1.821)), rel=1e-3)
    assert found.confidence == 0.996


def test_values_that_agree_by_luck_have_the_spread_of_identical_code() -> None:
    lucky, spread = ratio_interval([0.7] * 3), ratio_interval([0.7 - FLOOR, 0.7, 0.7 + FLOOR])
    assert lucky is not None
    assert spread is not None
    assert (lucky.low, lucky.high) == pytest.approx((spread.low, spread.high))
    assert lucky.high / exp(0.7) > 2


@pytest.mark.parametrize("n", range(3, 9))
def test_the_p_value_and_the_interval_decide_alike(n: int) -> None:
    for mean in (0.05, 0.1, 0.2, 0.4, 0.8):
        logs = [mean + 0.04 * (i % 3 - 1) for i in range(n)]
        interval = ratio_interval(logs)
        assert interval is not None
        assert (interval.low > 1) == (ratio_p_value(logs) < 0.004)


@pytest.mark.parametrize("logs", [[], [5.0], [5.0, 5.0]])
def test_fewer_decide_nothing(logs: list[float]) -> None:
    assert (ratio_interval(logs), ratio_p_value(logs)) == (None, 1.0)


def test_times_that_lie_far_apart_do_not_overflow() -> None:
    found = time_interval([1e-9, 1.0, 1e9])
    assert found is not None
    assert 0 < found.low < 1 < found.high < float("inf")
    assert time_interval([1.0, 2.0]) is None
