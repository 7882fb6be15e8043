"""The samples of blocks, one by one: when, how long a call took, and whether it was disturbed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from math import inf
from operator import itemgetter
from typing import NamedTuple

from attnbench.types.record import Block

MOST_LOST = 0.03
"""A sample that lost a larger share of its wall time to preemption is disturbed."""

LEAST_CLOCK = 0.75
"""So is one of a device that ran at a smaller share of its default clock."""

_LAUNCH_GRAIN_NS = 2_000
"""Launching takes microseconds, of which reading two clocks is a part; no preemption is as short."""


class Samples(NamedTuple):
    """Of each sample of a stretch, in the order of turns: ns, its time per call; whether it was disturbed."""

    ns: list[float]
    disturbed: list[bool]


def disturbed(block: Block) -> list[bool]:
    """Of each sample, whether something else than the calls made it longer: symmetric, blind to the time.

    On the CPU: more than ``MOST_LOST`` of the wall time passed without the thread running. CPU time above
    wall time, by the grain of the clocks, is no loss; a CPU time of 0 was not told, for a thread that was
    timed has run. With several threads it is the calling thread's alone; where that sleeps while others work,
    nearly all samples look disturbed, and are then kept, see ``comparison.compare``.
    On a device: the same of the time the thread took to launch, or a clock under ``LEAST_CLOCK``.
    """
    if not block.host_ns:
        return [
            0 < cpu < wall * (1 - MOST_LOST) for wall, cpu in zip(block.wall_ns, block.cpu_ns, strict=False)
        ]
    slow_mhz = LEAST_CLOCK * block.default_clock_mhz
    clocks = chain(block.clock_mhz, repeat(0))
    return [
        0 < cpu < host * (1 - MOST_LOST) - _LAUNCH_GRAIN_NS or 0 < mhz < slow_mhz
        for host, cpu, mhz in zip(block.host_ns, block.cpu_ns, clocks, strict=False)
    ]


def samples_of(blocks: Iterable[Block]) -> dict[int, Samples]:
    """The samples of one backend in one set, by stretch.

    What can't be a time (0, negative, not finite, of no calls), which no valid file holds, is no sample.
    """
    rows: dict[int, list[tuple[int, float, bool]]] = {}
    for block in blocks:
        if (calls := block.calls) < 1:
            continue
        rows.setdefault(block.stretch, []).extend(
            (turn, wall / calls, lost)
            for turn, wall, lost in zip(block.turns, block.wall_ns, disturbed(block), strict=False)
            if 0 < wall < inf
        )
    found = {}
    for stretch, taken in rows.items():
        taken.sort(key=itemgetter(0))
        found[stretch] = Samples([ns for _, ns, _ in taken], [lost for _, _, lost in taken])
    return found
