"""Whether a backend has two speeds of its own, and not those of the machine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import inf, log, sqrt
from statistics import fmean, median

from attnbench.compare.samples import samples_of
from attnbench.compare.speeds import ENOUGH, TwoSpeeds, two_speeds
from attnbench.types.record import SetLine

FOLLOWED = 1 / 4
"""Of the way from fast to slow: others that go as far with it show that it is the machine that has two
speeds."""

_Turn = tuple[int, str, float]
"""A place in the order of turns, who took it, and the logarithm of its time per call."""


def own_two_speeds(sets: Sequence[SetLine], backend: str) -> TwoSpeeds | None:
    """The two speeds of a backend's calls, over all sets; None where it has one, or the machine has two.

    Its times have two modes (:func:`~attnbench.compare.speeds.two_speeds`; disturbed samples don't count
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
