"""Warming up by evidence: until calls take as long as the ones before them, and find their memory there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter_ns

from attnbench.timing.sample import Sample

WINDOW = 8
AGREEING = 3
WITHIN = 0.05

FAULT_NS = 2_000
"""About what a minor page fault costs: 4 ms for 2,049 of them on a virtual machine."""

CALM_SHARE = 0.01
"""The largest share of a call that faults may take in a process that has its memory together."""

ALIKE = 3
"""So many calls in a row with the same faults: they are the call's own, and will not go away."""


def settled(trace_ns: Sequence[int]) -> bool:
    """Return whether the last three calls lie within 5 % of the median of the last eight (or all so far)."""
    if len(trace_ns) < AGREEING + 1:
        return False
    middle = median(trace_ns[-WINDOW:])
    return all(abs(ns - middle) <= WITHIN * middle for ns in trace_ns[-AGREEING:])


def calm(trace_ns: Sequence[int], faults: Sequence[int]) -> bool:
    """Return whether the last call found its memory there: page faults took 1 % of its time at most.

    So it does too where three calls in a row had as many faults, give or take a tenth: memory that is given
    back to the system after each call is faulted in by every call.
    """
    if not faults:
        return False
    if faults[-1] * FAULT_NS <= CALM_SHARE * trace_ns[-1]:
        return True
    last = faults[-ALIKE:]
    return len(last) == ALIKE and 10 * (max(last) - min(last)) <= max(last)


def warm_up(
    take: Callable[[], Sample], most_calls: int, most_s: float, least_s: float = 0.0, calm_s: float = 0.0
) -> tuple[list[int], bool]:
    """Call until the time settles, at most ``most_calls`` times or ``most_s`` seconds.

    Times that happen to agree settle nothing before ``least_s``: a forked process still copies pages then.
    When ``most_s`` is over, calls go on until one is calm, up to ``calm_s``: a process whose memory still
    grows is slower by half for several calls, however long they take. take makes one call and gives its
    sample. Gives the trace, ns per call, and whether it settled.
    """
    trace: list[int] = []
    faults: list[int] = []
    start = perf_counter_ns()
    least, end, at_last = (start + int(s * 1e9) for s in (least_s, most_s, max(most_s, calm_s)))
    while len(trace) < most_calls:
        sample = take()
        trace.append(sample.wall_ns)
        faults.append(sample.faults)
        now = perf_counter_ns()
        if now >= least and settled(trace) and calm(trace, faults):
            return trace, True
        if now >= at_last or (now >= end and calm(trace, faults)):
            break
    return trace, False
