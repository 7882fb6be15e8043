"""Order statistics: exact coverages and p-values, against tables and against every outcome counted."""

from __future__ import annotations

from itertools import product
from math import comb, inf
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.stats.tests import WHOLE_RANGE_BELOW, Interval, median_interval, sign_test, time_interval

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def ranks(n: int, at_least: float = 0.95) -> tuple[int, int, float] | None:
    """Which order statistics bound the interval of n values, and at what confidence."""
    interval = median_interval(range(1, n + 1), at_least)
    return interval and (int(interval.low), int(interval.high), interval.confidence)


@pytest.mark.parametrize(
    ("n", "low", "high", "percent"),
    [
        (6, 1, 6, 96.88), (7, 1, 7, 98.44), (8, 1, 8, 99.22), (9, 2, 8, 96.09), (10, 2, 9, 97.85),
        (15, 4, 12, 96.48), (17, 5, 13, 95.10), (20, 6, 15, 95.86), (25, 8, 18, 95.67), (30, 10, 21, 95.72),
    ],
)  # fmt: skip
def test_intervals_of_published_tables(n: int, low: int, high: int, percent: float) -> None:
    """Conover, Practical Nonparametric Statistics, and any table of confidence limits of a median."""
    found = ranks(n)
    assert found is not None
    assert found[:2] == (low, high)
    assert 100 * found[2] == pytest.approx(percent, abs=0.005)


@pytest.mark.parametrize("n", [5, 6, 9, 12, 17, 22, 25, 30])
@pytest.mark.parametrize("at_least", [0.0, 0.5, 0.95, 0.99, 1.0])
def test_the_confidence_is_exact_and_the_interval_the_narrowest(n: int, at_least: float) -> None:
    def covers(k: int) -> float:
        """How often k-th to (n + 1 - k)-th hold the median: from k to n - k values are below it."""
        return sum(comb(n, below) for below in range(k, n - k + 1)) / 2**n

    possible = [k for k in range(1, (n + 1) // 2 + 1) if covers(k) >= at_least]
    if not possible:
        assert ranks(n, at_least) is None
    else:
        assert ranks(n, at_least) == (max(possible), n + 1 - max(possible), covers(max(possible)))


@pytest.mark.parametrize("n", [9, 11, 12, 25])
def test_few_repetitions_are_printed_with_their_whole_range(n: int) -> None:
    printed, narrowest = time_interval(range(1, n + 1)), median_interval(range(1, n + 1))
    assert printed is not None
    assert narrowest is not None
    if n < WHOLE_RANGE_BELOW == 12:
        assert printed == Interval(1, n, 1 - 2 / 2**n)
        assert printed.confidence >= narrowest.confidence
    else:
        assert printed == narrowest


def test_values_need_not_be_in_order_nor_differ() -> None:
    assert median_interval([3, 1, 2, 9, 5, 8, 7, 4, 6]) == Interval(2, 8, 0.9609375)
    assert median_interval([7.0] * 9) == Interval(7.0, 7.0, 0.9609375)


def test_infinities_count_as_other_numbers_do() -> None:
    assert median_interval([1.0] * 7 + [inf, -inf]) == Interval(1.0, 1.0, 0.9609375)


def test_many_values_do_not_overflow() -> None:
    assert median_interval(range(3001)) == Interval(1446, 1554, pytest.approx(0.951, abs=0.002))
    assert sign_test([1.0] * 3000) == 0.0


@given(VALUES, st.floats(0.0, 1.0))
def test_it_holds_the_median_and_is_as_sure_as_asked(values: list[float], at_least: float) -> None:
    interval = median_interval(values, at_least)
    if interval is not None:
        assert interval.low <= median(values) <= interval.high
        assert interval.confidence >= at_least
        assert {interval.low, interval.high} <= set(values)


@pytest.mark.parametrize(
    ("above", "below", "p"),
    [
        (9, 0, 2 / 512), (0, 9, 2 / 512), (8, 1, 20 / 512), (10, 0, 2 / 1024), (9, 1, 22 / 1024),
        (8, 2, 0.109375), (5, 5, 1.0), (3, 2, 1.0), (1, 0, 1.0), (0, 0, 1.0), (15, 5, 0.041389465),
    ],
)  # fmt: skip
def test_p_values_of_the_sign_test(above: int, below: int, p: float) -> None:
    assert sign_test([1.0] * above + [-1.0] * below) == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5, 9, 10])
def test_its_level_is_exact(n: int) -> None:
    """Among all patterns of signs, p is at most p in exactly that share: no more, no less."""
    found = [sign_test(signs) for signs in product((-1.0, 1.0), repeat=n)]
    for p in set(found):
        assert sum(other <= p for other in found) / 2**n == p


def test_ties_count_against_significance() -> None:
    assert sign_test([1.0] * 9) < sign_test([1.0] * 9 + [0.0]) < sign_test([1.0] * 9 + [0.0] * 2)
    assert sign_test([1.0] * 9 + [0.0]) == sign_test([1.0] * 9 + [-1.0])
    assert sign_test([0.0] * 30) == 1.0


@given(VALUES)
def test_it_agrees_with_the_interval(values: list[float]) -> None:
    """0 lies outside the interval of confidence 1 - p or less if and only if the test finds p."""
    if 0.0 in values:
        return
    interval = median_interval(values)
    if interval is not None:
        outside = not interval.low <= 0 <= interval.high
        assert outside == (sign_test(values) <= 1 - interval.confidence + 1e-12)
