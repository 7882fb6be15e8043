"""The samples of blocks, one by one: when, how long a call took, and whether it was disturbed."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from attnbench.types.record import Block

MOST_LOST = 0.03
"""A sample that lost a larger share of its wall time to preemption is disturbed."""


class Sample(NamedTuple):
    """turn: its place in the order of turns of its stretch. ns: time per call. disturbed: preempted for
    long."""

    turn: int
    ns: float
    disturbed: bool


def disturbed(wall_ns: float, cpu_ns: float) -> bool:
    """Whether more than ``MOST_LOST`` of the wall time passed without the thread running.

    CPU time above wall time, by the grain of the clocks, is no loss. A CPU time of 0 was not told: a thread
    that was timed has run. With several threads this is the calling thread's time alone; where it sleeps
    while others work, that looks like a loss, in nearly all samples: they are then kept, see ``compare``.
    """
    return 0 < cpu_ns < wall_ns * (1 - MOST_LOST)


def samples_of(blocks: Iterable[Block]) -> dict[int, list[Sample]]:
    """The samples of one backend in one set by stretch, each stretch in the order of its turns.

    What can't be a time (0, negative, not finite, of no calls), which no valid file holds, is no sample.
    """
    found: dict[int, list[Sample]] = {}
    for block in blocks:
        if block.calls < 1:
            continue
        stretch = found.setdefault(block.stretch, [])
        stretch.extend(
            Sample(turn, wall / block.calls, disturbed(wall, cpu))
            for turn, wall, cpu in zip(block.turns, block.wall_ns, block.cpu_ns, strict=False)
            if 0 < wall < inf
        )
    for stretch in found.values():
        stretch.sort(key=_turn)
    return found


def _turn(sample: Sample) -> int:
    return sample.turn
