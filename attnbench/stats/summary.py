"""From the samples of repetitions to the time of one backend, and whether it has two speeds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, exp, log, sqrt
from statistics import fmean, median

from attnbench.stats.intervals import time_interval
from attnbench.stats.pairs import samples_of
from attnbench.stats.sign_test import Interval
from attnbench.types.record import SetLine

LEAST_SHARE = 0.125
"""A mode holds at least this share of the samples."""

LEAST_FACTOR = 1.25
"""Modes nearer to each other than this are one for a reader of a table."""

FEWEST = 5
"""A mode holds at least so many samples."""

ENOUGH = 5_000
"""More samples say no more about modes."""

_GATHERED = 0.4
_DEVIATIONS = 2.5
_CUTS = 100


@dataclass(frozen=True)
class TwoSpeeds:
    """fast, slow: the typical times of the two modes, in the unit given. slow_share: of the samples."""

    fast: float
    slow: float
    slow_share: float


def two_speeds(times: Iterable[float]) -> TwoSpeeds | None:
    """Return the two modes of some times; None where they have one mode, or too few times to know.

    The sorted logarithms are cut in two so that their absolute deviations from the medians of the two parts
    are least. They have two modes where

    - each part has ``LEAST_SHARE`` of them and ``FEWEST``, and the medians are ``LEAST_FACTOR`` apart;
    - each part is gathered: of three windows as wide as a third of the way from median to median, those at
      the medians hold two fifths of their parts or more;
    - there is a valley: the window in the middle holds at most half as many as either of them, by more than
      two and a half standard deviations of a fair count.

    If there is one mode, however skewed, flat or heavy in the tail, the middle is never less dense than both
    sides. Thirty samples show two modes of equal shares, a hundred show one of 15 %. Times that drift slowly
    over more than 20 %, or come in few clumps, may be taken for two modes; they had two at the time.
    """
    given = sorted(times)
    # Every n-th in order of size is as good as all. In order of time it could fall in step with them.
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
    """Return the size of the lower part; a hundred cuts are tried, which is near enough."""
    n = len(ordered)
    sums = [0.0, *accumulate(ordered)]

    def deviations(start: int, stop: int) -> float:
        half = (stop - start) // 2
        return (sums[stop] - sums[stop - half]) - (sums[start + half] - sums[start])

    step = max(1, (n - 2 * fewest) // _CUTS)
    return min(range(fewest, n - fewest + 1, step), key=lambda cut: deviations(0, cut) + deviations(cut, n))


FOLLOWED = 1 / 4
"""If the neighbours go this share of the way from fast to slow, the machine has two speeds."""


def own_two_speeds(sets: Sequence[SetLine], backend: str) -> TwoSpeeds | None:
    """Return the two speeds of a backend's calls; None where it has one, or where the machine has two.

    The times must have two modes (:func:`two_speeds`; disturbed samples count only if they are most). The
    cause may be the backend: a path taken now and then, or a memory layout that only some processes have. Or
    it is the machine. Then the backends that take the turns before and after are slow at the same times. So
    their times over their own medians are compared. If those beside slow turns are slower than those beside
    fast turns by ``FOLLOWED`` of the distance of the modes (mean of logarithms), it is the machine, which
    cancels in ratios. A backend measured alone is judged by itself.
    """
    lines = [line for line in sets if line.blocks.get(backend)]
    stretches = [s for line in lines for s in samples_of(line.blocks[backend]).values()]
    every = [ns for s in stretches for ns in s.ns]
    calm = [ns for s in stretches for ns, lost in zip(s.ns, s.disturbed, strict=True) if not lost]
    found = two_speeds(calm if 2 * len(calm) >= len(every) else every)
    if found is None:
        return None
    between, gap = log(sqrt(found.fast * found.slow)), log(found.slow / found.fast)
    beside: dict[bool, list[float]] = {True: [], False: []}
    for own, others in _neighbours(lines, backend):
        # Bounded, so that a few long waits do not carry the mean; a median would jump from mode to mode.
        beside[own > between].append(min(max(others, -gap), gap))
    if not beside[True] or not beside[False]:
        return found
    return None if fmean(beside[True]) - fmean(beside[False]) >= FOLLOWED * gap else found


def _neighbours(lines: Sequence[SetLine], backend: str) -> Iterator[tuple[float, float]]:
    """Yield for each turn of a backend its log time, and that of its neighbours over their own medians."""
    stretches: dict[tuple[int, int], list[tuple[int, str, float]]] = defaultdict(list)
    by_name: dict[str, list[float]] = defaultdict(list)
    for number, line in enumerate(lines):
        for name, blocks in line.blocks.items():
            for block in blocks:
                turns = [
                    (turn, name, log(wall / block.calls))
                    for turn, wall in zip(block.turns, block.wall_ns, strict=False)
                ]
                stretches[number, block.stretch] += turns
                by_name[name] += [logs for _, _, logs in turns]
    typical = {name: median(logs) for name, logs in by_name.items() if logs}
    for turns in stretches.values():
        turns.sort()
        for place, (_, name, own) in enumerate(turns):
            if name != backend:
                continue
            beside = turns[max(0, place - 1) : place] + turns[place + 1 : place + 2]
            levels = [logs - typical[other] for _, other, logs in beside if other != backend]
            if levels:
                yield own, fmean(levels)


@dataclass(frozen=True)
class Timing:
    """The time of one backend on one case.

    median_ms: the median over sets of the set's median time per call. interval: its exact interval at 95 % or
    more, in ms; None for too few sets. sets: those with samples of the backend. timed_calls: calls inside
    timed samples. bimodal: its calls have two speeds, and not because the machine has
    (:func:`own_two_speeds`); the median is one of the two, or lies where no call is. contended: more than
    half of its samples were disturbed. faults_per_call: minor page faults while timed.
    """

    median_ms: float
    interval: Interval | None
    sets: int
    timed_calls: int
    bimodal: bool
    contended: bool
    faults_per_call: float


def summarise(sets: Iterable[SetLine], backend: str) -> Timing | None:
    """Return the timing of a backend over all sets that have samples of it; None where none has."""
    lines = [line for line in sets if line.blocks.get(backend)]
    by_set = [samples_of(line.blocks[backend]).values() for line in lines]
    times = [ns for stretches in by_set if (ns := [t for samples in stretches for t in samples.ns])]
    if not times:
        return None
    medians = [median(ns) / 1e6 for ns in times]
    lost = [lost for stretches in by_set for samples in stretches for lost in samples.disturbed]
    blocks = [block for line in lines for block in line.blocks[backend]]
    calls = timed_calls(lines, backend)
    return Timing(
        median_ms=median(medians),
        interval=time_interval(medians),
        sets=len(medians),
        timed_calls=calls,
        bimodal=own_two_speeds(lines, backend) is not None,
        contended=2 * sum(lost) > len(lost),
        faults_per_call=sum(sum(block.faults) for block in blocks) / max(1, calls),
    )


def timed_calls(sets: Iterable[SetLine], backend: str) -> int:
    """Count the calls inside timed samples."""
    return sum(b.calls * len(b.wall_ns) for line in sets for b in line.blocks.get(backend, []))
