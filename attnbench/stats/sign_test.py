"""The sign test of a median, and the interval that belongs to it: exact for any distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, isnan, log2
from typing import Protocol

LEVEL = 0.004
"""The largest p-value of a difference. The sign test is exact, so identical code is called slower in at most
half of this, 0.2 % of cells, whatever the noise. Nine sets that all agree (p = 0.0039) are the fewest that
reach it."""

AT_LEAST = 0.95
"""The least confidence of a printed interval; few values allow only certain confidences."""


@dataclass(frozen=True)
class Interval:
    """From low to high, both included. confidence: the least share of such intervals that hold the median."""

    low: float
    high: float
    confidence: float


class WithInterval(Protocol):
    """A number with its interval, None where there are too few values for one."""

    @property
    def interval(self) -> Interval | None:
        """The interval."""


def ends(found: WithInterval | None) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return low, high and confidence of an interval; None for each where there is none."""
    interval = None if found is None else found.interval
    return (None, None, None) if interval is None else (interval.low, interval.high, interval.confidence)


def median_interval(values: Sequence[float], at_least: float = AT_LEAST) -> Interval | None:
    """Return the narrowest [k-th, (n + 1 - k)-th] of n sorted values at a confidence of ``at_least``.

    The number of values below the median of a continuous distribution is binomial (n, 1/2). So the confidence
    is 1 - 2 P(fewer than k). It is exact for any shape, and higher with ties. The values must be independent.
    Nine values give [2nd, 8th] at 0.961; five or fewer give nothing at 0.95.
    Source: Thompson, Annals of Mathematical Statistics 7 (1936), 122.

    Returns:
        None if the values are too few for this confidence, or if one is NaN.
    """
    n = len(values)
    if any(isnan(value) for value in values):
        return None
    within, rank = 0, 0
    # An integer: the number of the 2^n outcomes that have fewer than k values below the median.
    fewer = 0
    for k in range(1, (n + 1) // 2 + 1):
        fewer += comb(n, k - 1)
        covered = (1 << n) - 2 * fewer
        if covered / (1 << n) < at_least:
            break
        within, rank = covered, k
    if rank == 0:
        return None
    ordered = sorted(values)
    return Interval(ordered[rank - 1], ordered[n - rank], within / (1 << n))


def sign_test(values: Sequence[float]) -> float:
    """Return the exact two-sided p-value of the sign test that the median is 0.

    With n values, of which m are on the side that has more, it is 2 P(binomial(n, 1/2) >= m), at most 1.
    Zeros and NaN count in n on neither side, so they reduce significance. Without values it is 1.
    Source: Arbuthnott (1710); Dixon and Mood, Journal of the American Statistical Association 41 (1946), 557.
    """
    n = len(values)
    most = max(sum(value > 0 for value in values), sum(value < 0 for value in values))
    outcomes = 2 * sum(comb(n, i) for i in range(most, n + 1))
    return min(1.0, outcomes / (1 << n))


def fewest_sets(level: float) -> int:
    """Return the number of agreeing sets that the sign test needs for a p-value of at most ``level``."""
    return max(1, ceil(1 - log2(level)))
