"""From the samples of sets to the time of one backend, and what to know about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from statistics import median, quantiles

from attnbench.compare.bimodal import own_two_speeds
from attnbench.compare.interval import Interval, printed_interval
from attnbench.compare.samples import samples_of
from attnbench.types.record import Block, SetLine

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
