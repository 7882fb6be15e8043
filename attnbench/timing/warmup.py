"""Warm-up by evidence: until the times of calls agree, and their memory is already there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

from attnbench.timing.sample import Sample


@dataclass(frozen=True)
class Limits:
    """How long a warm-up lasts: see :func:`warm_up`."""

    most_calls: int
    most_s: float
    least_s: float = 0.0
    calm_s: float = 0.0


IN_CHECKS = Limits(most_calls=20, most_s=0.15)
"""After the check of a backend; its trace decides how many calls a sample has."""

BEFORE_SLOTS = Limits(most_calls=200, most_s=0.01, least_s=0.003, calm_s=0.3)
"""In a fresh worker, before its first slot. Pages that a fork writes to for the first time are copied: some
dozens, in its first two milliseconds. Its heap grows over the first calls: where each leaves 16 MiB, four of
10 ms took 20, 20, 15 and 11."""

WINDOW = 8
AGREEING = 3
WITHIN = 0.05

FAULT_NS = 2_000
"""The rough cost of a minor page fault: 4 ms for 2,049 of them on a virtual machine."""

CALM_SHARE = 0.01
"""The largest share of a call's time that page faults may take in a settled process."""

ALIKE = 3
"""After this many calls with equal faults, the faults belong to the call and will not end."""


def settled(trace_ns: Sequence[int]) -> bool:
    """Return whether the last three calls lie within 5 % of the median of the last eight (or all so far)."""
    if len(trace_ns) < AGREEING + 1:
        return False
    middle = median(trace_ns[-WINDOW:])
    return all(abs(ns - middle) <= WITHIN * middle for ns in trace_ns[-AGREEING:])


def calm(trace_ns: Sequence[int], faults: Sequence[int]) -> bool:
    """Return whether page faults took at most 1 % of the last call, or are a part of every call.

    They are a part of every call where the last three had as many, within a tenth: memory that goes back to
    the system after each call is faulted in by the next.
    """
    if not faults:
        return False
    if faults[-1] * FAULT_NS <= CALM_SHARE * trace_ns[-1]:
        return True
    last = faults[-ALIKE:]
    return len(last) == ALIKE and 10 * (max(last) - min(last)) <= max(last)


def warm_up(take: Callable[[], Sample], limits: Limits) -> list[int]:
    """Call until the time settles, at most ``most_calls`` times or ``most_s`` seconds.

    Agreement does not count before ``least_s``, because a forked process still copies pages then. After
    ``most_s`` calls go on until one is calm, up to ``calm_s``: a process whose memory still grows is slower
    by half for several calls. take: makes one call and returns its sample. Return the trace, ns per call.
    """
    trace: list[int] = []
    faults: list[int] = []
    start = perf_counter_ns()
    least, end, at_last = (
        start + int(s * 1e9) for s in (limits.least_s, limits.most_s, max(limits.most_s, limits.calm_s))
    )
    while len(trace) < limits.most_calls:
        sample = take()
        trace.append(sample.wall_ns)
        faults.append(sample.faults)
        now = perf_counter_ns()
        may_end = now >= end or (now >= least and settled(trace))
        if now >= at_last or (may_end and calm(trace, faults)):
            break
    return trace
