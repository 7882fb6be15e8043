"""Whether times have two modes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, exp, inf, log, sqrt

LEAST_SHARE = 0.125
"""A mode holds at least this share of the samples."""

LEAST_FACTOR = 1.25
"""Modes nearer to each other than this are one, for a reader of a table."""

FEWEST = 5
"""A mode holds at least so many samples."""

ENOUGH = 5_000
"""More samples say no more of modes."""

_GATHERED = 0.4
_DEVIATIONS = 2.5
_CUTS = 100


@dataclass(frozen=True)
class TwoSpeeds:
    """fast, slow: the typical times of the two modes, in the unit given; slow_share: of samples in the slow
    one."""

    fast: float
    slow: float
    slow_share: float


def two_speeds(times: Iterable[float]) -> TwoSpeeds | None:
    """The two modes of some times; None where they have but one, or that can't be told.

    The sorted logarithms are cut in two so that their absolute deviations from the medians of the two parts
    are least. They have two modes where

    - each part has ``LEAST_SHARE`` of them and ``FEWEST``, and the medians are ``LEAST_FACTOR`` apart;
    - each part is gathered: of three windows as wide as a third of the way from median to median, those at
      the medians hold two fifths of their parts or more;
    - there is a valley: the window in the middle holds at most half as many as either of them, by more than
      two and a half standard deviations of a fair count.

    Where there is one mode, however skewed, flat or heavy in the tail, the middle is never less dense than
    both sides. It takes some thirty samples to find two modes of equal shares, a hundred for one of 15 %.
    Times that wander slowly over more than 20 %, or come in few clumps, may be taken for two modes, which at
    the time they had. What can't be a time (0, negative, not finite) is left out.
    """
    given = sorted(time for time in times if 0 < time < inf)
    # Every so-many-th in order of size is as good as all; in order of time it could fall in step with them.
    logs = list(map(log, given[:: 1 + len(given) // ENOUGH]))
    n = len(logs)
    fewest = max(FEWEST, ceil(LEAST_SHARE * n))
    if n < 2 * fewest:
        return None
    cut = _best_cut(logs, fewest)
    low, high = logs[cut // 2], logs[(cut + n) // 2]
    if high - low < log(LEAST_FACTOR):
        return None

    def held_at(centre: float) -> int:
        reach = (high - low) / 6
        return bisect_right(logs, centre + reach) - bisect_left(logs, centre - reach)

    fast, middle, slow = held_at(low), held_at((low + high) / 2), held_at(high)
    side = min(fast, slow)
    if fast < _GATHERED * cut or slow < _GATHERED * (n - cut):
        return None
    if 2 * middle > side or side - middle < _DEVIATIONS * sqrt(side + middle):
        return None
    return TwoSpeeds(exp(low), exp(high), (n - cut) / n)


def _best_cut(ordered: list[float], fewest: int) -> int:
    """How many of the sorted values make the lower part; a hundred cuts are tried, which is near enough."""
    n = len(ordered)
    sums = [0.0, *accumulate(ordered)]

    def deviations(start: int, stop: int) -> float:
        half = (stop - start) // 2
        return (sums[stop] - sums[stop - half]) - (sums[start + half] - sums[start])

    step = max(1, (n - 2 * fewest) // _CUTS)
    return min(range(fewest, n - fewest + 1, step), key=lambda cut: deviations(0, cut) + deviations(cut, n))
