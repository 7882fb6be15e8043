"""The t-test of a few log ratios, with a floor under their spread.

Where a call takes seconds, three repetitions are all there is, and the sign test can't decide whatever the
difference. This model can, because it assumes more: log ratios of repetitions are independent and normal. Few
values may lie close together by luck, so their spread is never taken to be less than what the same code
differs by.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, cos, inf, isnan, pi, sin, sqrt
from statistics import fmean, stdev

from attnbench.stats.sign_test import Interval

FLOOR = 0.1
"""The least spread of a log ratio (standard deviation). Processes of the same code differ by 1.1 % at L=512,
but calls of seconds are far apart in time, and the machine drifts between them. With it three repetitions
show a ratio of 2.5 or more, five of 1.3, eight of 1.15. Under ten kinds of simulated noise
(``tests/compare``) identical code is called slower in at most 0.5 % of comparisons."""


FEWEST = 3
"""Two values have no useful interval: at 99.6 % it is 159 standard errors wide on each side."""


def t_test(log_ratios: Sequence[float]) -> float:
    """Return the two-sided p-value that the mean is 0; 1 for fewer than three values, or NaN."""
    mean, error = _mean_and_error(log_ratios)
    return 1.0 if error == inf else tail(abs(mean) / error, len(log_ratios) - 1)


def t_interval(log_ratios: Sequence[float], confidence: float) -> Interval | None:
    """Return the interval of the mean; None for fewer than three values, or NaN."""
    mean, error = _mean_and_error(log_ratios)
    if error == inf:
        return None
    far = error * _quantile(1 - confidence, len(log_ratios) - 1)
    return Interval(mean - far, mean + far, confidence)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is infinite where it is unknown."""
    if len(values) < FEWEST or any(isnan(value) for value in values):
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
