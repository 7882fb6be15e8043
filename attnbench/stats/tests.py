"""The sign test and the t-test, the intervals that belong to them, and which of both decides.

The sign test of a median is exact for any distribution. Where a call takes seconds, three repetitions are all
there is, and the sign test can't decide whatever the difference. The t-test can, because it assumes more: log
ratios of repetitions are independent and normal. Few values may lie close together by luck, so their spread
is never taken to be less than what the same code differs by (``FLOOR``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, ceil, comb, cos, exp, inf, log, log2, pi, sin, sqrt
from statistics import fmean, stdev
from typing import Protocol

LEVEL = 0.004
"""The largest p-value of a difference. The sign test is exact, so identical code is called slower in at most
half of this, 0.2 % of cells, whatever the noise. Nine repetitions that all agree (p = 0.0039) are the fewest
that reach it."""

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
        None if the values are too few for this confidence.
    """
    n = len(values)
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
    Zeros count in n on neither side, so they reduce significance. Without values it is 1.
    Source: Arbuthnott (1710); Dixon and Mood, Journal of the American Statistical Association 41 (1946), 557.
    """
    n = len(values)
    most = max(sum(value > 0 for value in values), sum(value < 0 for value in values))
    outcomes = 2 * sum(comb(n, i) for i in range(most, n + 1))
    return min(1.0, outcomes / (1 << n))


def fewest_repetitions(level: float) -> int:
    """Return the number of agreeing repetitions that the sign test needs for a p-value of at most
    ``level``."""
    return max(1, ceil(1 - log2(level)))


FLOOR = 0.1
"""The least spread of a log ratio (standard deviation). Processes of the same code differ by 1.1 % at L=512,
but calls of seconds are far apart in time, and the machine drifts between them. With it three repetitions
show a ratio of 2.5 or more, five of 1.3, eight of 1.15. Under ten kinds of simulated noise
(``tests/compare``) identical code is called slower in at most 0.5 % of comparisons."""


T_TEST_FROM = 3
"""Two values have no useful interval: at 99.6 % it is 159 standard errors wide on each side."""


def t_test(log_ratios: Sequence[float]) -> float:
    """Return the two-sided p-value that the mean is 0; 1 for fewer than three values."""
    mean, error = _mean_and_error(log_ratios)
    return 1.0 if error == inf else tail(abs(mean) / error, len(log_ratios) - 1)


def t_interval(log_ratios: Sequence[float], confidence: float) -> Interval | None:
    """Return the interval of the mean; None for fewer than three values."""
    mean, error = _mean_and_error(log_ratios)
    if error == inf:
        return None
    far = error * _quantile(1 - confidence, len(log_ratios) - 1)
    return Interval(mean - far, mean + far, confidence)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is infinite where it is unknown."""
    if len(values) < T_TEST_FROM:
        return 0.0, inf
    return fmean(values), max(stdev(values), FLOOR) / sqrt(len(values))


def tail(t: float, freedom: int) -> float:
    """Return how often Student's t, with so many degrees of freedom, lies beyond ±``t``.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cos(angle) ** 2 * k / (k + 1)
    inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, 1.0 - inside)


def _quantile(beyond: float, freedom: int) -> float:
    low, high = 0.0, 1e6
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > beyond else (low, middle)
    return high


SIGN_TEST_FROM = fewest_repetitions(LEVEL)
"""From so many repetitions on the sign test decides; below, the t-test of the log ratios."""

WHOLE_RANGE_BELOW = 12
"""With fewer values than this the interval of a median is their whole range.

So few repetitions end within a second or two, and share that moment. The second to the eighth of nine,
nominally 96 %, held the value of other runs in 79 to 88 % of cases, the first to the ninth in 93 to 97 %.
With 22 repetitions the narrowest interval at 95 % was right as often as it should."""


def time_interval(times: Sequence[float]) -> Interval | None:
    """Return the interval of a positive time, from one value a repetition, at 95 %; None for fewer than
    three."""
    if len(times) < SIGN_TEST_FROM:
        return _powers(t_interval(list(map(log, times)), AT_LEAST))
    return of_median(times)


def ratio_interval(log_ratios: Sequence[float]) -> Interval | None:
    """Return the interval of a ratio, from its logarithm in each repetition; None for fewer than three."""
    few = len(log_ratios) < SIGN_TEST_FROM
    return _powers(t_interval(log_ratios, 1 - LEVEL) if few else of_median(log_ratios))


def of_median(values: Sequence[float]) -> Interval | None:
    """Return the interval of a median, from one value a repetition."""
    interval = median_interval(values)
    if interval is None or len(values) >= WHOLE_RANGE_BELOW:
        return interval
    return Interval(min(values), max(values), 1 - 2.0 ** (1 - len(values)))


def _powers(found: Interval | None) -> Interval | None:
    if found is None:
        return None
    # exp() of more is too large for a float.
    low, high = (exp(max(-700.0, min(700.0, bound))) for bound in (found.low, found.high))
    return Interval(low, high, found.confidence)


def ratio_p_value(log_ratios: Sequence[float]) -> float:
    """Return the p-value that the ratio is 1, from its logarithm in each repetition."""
    return t_test(log_ratios) if len(log_ratios) < SIGN_TEST_FROM else sign_test(log_ratios)
