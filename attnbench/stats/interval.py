"""What order statistics say of a median, whatever the distribution: an exact interval, an exact test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, isnan

AT_LEAST = 0.95
"""The least confidence of a printed interval; few values allow only certain ones."""

WHOLE_RANGE_BELOW = 12
"""Of fewer values than this an interval is all that lies between the least and the largest.

So few sets are over in a second or two and have that moment in common. The second to the eighth of nine,
which should hold at 96 %, held the value of other runs in 79 to 88 % of cases, the first to the ninth in 93
to 97 %; with 22 sets the narrowest interval at 95 % did."""


@dataclass(frozen=True)
class Interval:
    """From low to high, both included; confidence: how often such an interval holds the median, at least."""

    low: float
    high: float
    confidence: float


def printed_interval(values: Sequence[float]) -> Interval | None:
    """The interval that is printed of one value for each set: at ``AT_LEAST``, and the whole range of few."""
    interval = median_interval(values)
    if interval is None or len(values) >= WHOLE_RANGE_BELOW:
        return interval
    return Interval(min(values), max(values), 1 - 2.0 ** (1 - len(values)))


def median_interval(values: Sequence[float], at_least: float = AT_LEAST) -> Interval | None:
    """The narrowest [k-th, (n + 1 - k)-th] of n sorted values that holds the median at ``at_least`` or more.

    The number of values below the median of a continuous distribution is binomial (n, 1/2), so the confidence
    is 1 - 2 P(fewer than k): exact, without any assumption on the shape; with ties it is more. Independent
    values are all it needs. Nine give [2nd, 8th] at 0.961, five or fewer nothing at 0.95.
    Source: Thompson, Annals of Mathematical Statistics 7 (1936), 122.

    Returns:
        None where the values are too few for this confidence, or one is no number.
    """
    n = len(values)
    if any(isnan(value) for value in values):
        return None
    within, rank = 0, 0
    # Counted in whole numbers: the number of the 2^n outcomes that have fewer than k values below.
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


def sign_test(values: Sequence[float], null: float = 0.0) -> float:
    """The two-sided p-value of the sign test that the median is ``null``: exact.

    With n values of which m are on the side that has more of them: 2 P(binomial(n, 1/2) >= m), at most 1.
    Ties (and what is no number) stay in n on neither side, so that they count against significance. 1 without
    values. Source: Arbuthnott (1710); Dixon and Mood, Journal of the American Statistical Association 41
    (1946), 557.
    """
    n = len(values)
    above = sum(value > null for value in values)
    below = sum(value < null for value in values)
    most = max(above, below)
    outcomes = 2 * sum(comb(n, i) for i in range(most, n + 1))
    return min(1.0, outcomes / (1 << n))
