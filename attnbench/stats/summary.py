"""From the samples of repetitions to the time of one backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from attnbench.stats.intervals import time_interval
from attnbench.stats.pairs import samples_of
from attnbench.stats.sign_test import Interval
from attnbench.types.record import SetLine


@dataclass(frozen=True)
class Timing:
    """The time of one backend on one case.

    median_ms: the median over sets of the set's median time per call. interval: its exact interval at 95 % or
    more, in ms; None for too few sets. sets: those with samples of the backend. timed_calls: calls inside
    timed samples. contended: more than half of its samples were disturbed. faults_per_call: minor page faults
    while timed.
    """

    median_ms: float
    interval: Interval | None
    sets: int
    timed_calls: int
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
    calls = sum(block.calls * len(block.wall_ns) for block in blocks)
    return Timing(
        median_ms=median(medians),
        interval=time_interval(medians),
        sets=len(medians),
        timed_calls=calls,
        contended=2 * sum(lost) > len(lost),
        faults_per_call=sum(sum(block.faults) for block in blocks) / max(1, calls),
    )
