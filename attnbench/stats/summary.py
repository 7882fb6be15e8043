"""From the samples of repetitions to the time of one backend, and whether it has two speeds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from math import ceil, exp, inf, log, sqrt
from statistics import fmean, median, quantiles

from attnbench.stats.interval import Interval, printed_interval
from attnbench.stats.samples import samples_of
from attnbench.types.record import Block, SetLine

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


FOLLOWED = 1 / 4
"""Of the way from fast to slow: others that go as far with it show that it is the machine that has two
speeds."""

_Turn = tuple[int, str, float]
"""A place in the order of turns, who took it, and the logarithm of its time per call."""


def own_two_speeds(sets: Sequence[SetLine], backend: str) -> TwoSpeeds | None:
    """The two speeds of a backend's calls, over all sets; None where it has one, or the machine has two.

    Its times have two modes (:func:`~attnbench.stats.summary.two_speeds`; disturbed samples don't count
    unless they are most). That may be the backend's: a path taken now and then, a layout of memory that one
    process has and another hasn't. Or the machine's, which others use too: then those who take the turns
    before and after are slow at the same times. So their times over their own medians are looked at: where
    those beside its slow turns are slower than those beside its fast ones by ``FOLLOWED`` of the distance of
    the modes, in the mean of logarithms, it is the machine, which cancels in ratios. A backend measured alone
    is judged by itself.
    """
    lines = [line for line in sets if line.blocks.get(backend)]
    found = two_speeds(_times(lines, backend))
    if found is None:
        return None
    between, gap = log(sqrt(found.fast * found.slow)), log(found.slow / found.fast)
    beside: dict[bool, list[float]] = {True: [], False: []}
    for own, others in _neighbours(lines, backend):
        # Cut, so that a few long waits don't carry the mean; a median would jump from mode to mode.
        beside[own > between].append(min(max(others, -gap), gap))
    if not beside[True] or not beside[False]:
        return found
    return None if fmean(beside[True]) - fmean(beside[False]) >= FOLLOWED * gap else found


def _times(lines: Sequence[SetLine], backend: str) -> list[float]:
    stretches = [s for line in lines for s in samples_of(line.blocks[backend]).values()]
    every = [ns for s in stretches for ns in s.ns]
    calm = [ns for s in stretches for ns, lost in zip(s.ns, s.disturbed, strict=True) if not lost]
    return calm if 2 * len(calm) >= len(every) else every


def _neighbours(lines: Sequence[SetLine], backend: str) -> Iterator[tuple[float, float]]:
    """For each turn of a backend the logarithm of its time, and of those beside it over their medians."""
    stretches = list(_stretches(lines, backend))
    by_name: dict[str, list[float]] = {}
    for turns in stretches:
        for _, name, ns in turns:
            by_name.setdefault(name, []).append(ns)
    typical = {name: median(logs) for name, logs in by_name.items()}
    for turns in stretches:
        for place, (_, name, ns) in enumerate(turns):
            if name != backend:
                continue
            beside = turns[max(0, place - 1) : place] + turns[place + 1 : place + 2]
            levels = [their_ns - typical[other] for _, other, their_ns in beside if other != backend]
            if levels:
                yield ns, fmean(levels)


def _stretches(lines: Sequence[SetLine], backend: str) -> Iterator[list[_Turn]]:
    """The turns of all in the first part of each stretch, enough for ``ENOUGH`` samples of this backend."""
    blocks = [(line, block) for line in lines for block in line.blocks[backend] if block.turns]
    each = 1 + ENOUGH // max(1, len(blocks))
    for line, mine in blocks:
        last = mine.turns[:each][-1]
        turns = [
            (turn, name, log(wall / block.calls))
            for name, theirs in line.blocks.items()
            for block in theirs
            if block.stretch == mine.stretch and block.calls >= 1
            for turn, wall in zip(
                block.turns[: bisect_right(block.turns, last + 1)], block.wall_ns, strict=False
            )
            if 0 < wall < inf
        ]
        turns.sort()
        yield turns


BATON_NS = 200_000
"""More than it takes one process to wake the next, most of the time."""

_CLOCK_FACTOR = 4

VITALS_NS = 20_000
"""More than reading the vitals before and after a sample takes of this thread's time."""

_CPU_FACTOR = 1.1


@dataclass(frozen=True)
class Timing:
    """The time of one backend on one case.

    median_ms: the median over sets of the set's median time per call, in milliseconds; interval: its exact
    interval at 95 % or more, in milliseconds, None where the sets are too few. sets: those with samples of
    it. timed_calls: calls inside timed samples. bimodal: its calls have two speeds, and not because the
    machine has (``bimodal.own_two_speeds``): the median is one of the two, or lies where no call is.
    contended: more than half of its samples were disturbed.
    faults_per_call: minor page faults while timed.
    """

    median_ms: float
    interval: Interval | None
    sets: int
    timed_calls: int
    bimodal: bool
    contended: bool
    faults_per_call: float


def summarise(sets: Iterable[SetLine], backend: str) -> Timing | None:
    """The timing of a backend over all sets that have samples of it; None where none has."""
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
        interval=printed_interval(medians),
        sets=len(medians),
        timed_calls=calls,
        bimodal=own_two_speeds(lines, backend) is not None,
        contended=2 * sum(lost) > len(lost),
        faults_per_call=sum(sum(block.faults) for block in blocks) / max(1, calls),
    )


def timed_calls(sets: Iterable[SetLine], backend: str) -> int:
    """How many calls were made inside timed samples."""
    return sum(b.calls * len(b.wall_ns) for line in sets for b in line.blocks.get(backend, []))


def clock_problem(sets: Iterable[SetLine], backend: str, *, warm_calls: int = 0) -> str:
    """What makes the worker's clock doubtful; "" for nothing. What the clocks of others tell comes first."""
    blocks = [block for line in sets for block in line.blocks.get(backend, [])]
    return _told_by_others(blocks, warm_calls) or _more_cpu_than_wall(blocks)


def _told_by_others(blocks: Sequence[Block], warm_calls: int) -> str:
    """What turns took by the clocks of the others that is far more than by its own; "" for nothing.

    A turn is ``warm_calls`` untimed calls, one sample, and waking the next process. The clock is doubted
    where three quarters of all turns took over four times as long as the median turn should by the worker's
    own clock, and ``BATON_NS`` more. Only a lie in half of the samples moves a median; honest turns are
    longer too where they wait for the core, but hardly three in four by so much. On a device launching is
    added; cold launches are not judged, since overwriting the cache takes longer.
    """
    told, asked = [], []
    for block in blocks:
        if block.mode == "cold" or block.calls < 1:
            continue
        launching = chain(block.host_ns, repeat(0))
        for wall, host, turn in zip(block.wall_ns, launching, block.asked_ns, strict=False):
            if turn > 0:
                told.append((wall + host) * (1 + warm_calls / block.calls))
                asked.append(turn)
    if not told:
        return ""
    own = median(told)
    others = quantiles(asked, n=4, method="inclusive")[0] if len(asked) > 1 else float(asked[0])
    if others <= _CLOCK_FACTOR * own + BATON_NS:
        return ""
    return (
        f"its turns take {own / 1e6:.3g} ms by its own clock (median), "
        f"and {others / 1e6:.3g} ms or more by the clocks of the others (in three of four)"
    )


def _more_cpu_than_wall(blocks: Sequence[Block]) -> str:
    """More CPU time than a thread can have; "" for nothing.

    On a CPU a clock is doubted where half of the samples have a tenth more CPU time than wall time, and
    ``VITALS_NS`` more, which reading the vitals may take: no thread can use more time than passes.
    """
    beyond = [
        cpu - _CPU_FACTOR * wall - VITALS_NS
        for block in blocks
        if not block.mode
        for wall, cpu in zip(block.wall_ns, block.cpu_ns, strict=False)
    ]
    if not beyond or median(beyond) <= 0:
        return ""
    return "its samples have more CPU time than wall time by its own clock, which no thread can have"
