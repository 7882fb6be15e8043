"""Warming up by evidence: until calls take as long as the ones before them."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

WINDOW = 8
AGREEING = 3
WITHIN = 0.05


def settled(trace_ns: list[int]) -> bool:
    """Whether the last three calls lie within 5 % of the median of the last eight (or all so far)."""
    if len(trace_ns) < AGREEING + 1:
        return False
    middle = median(trace_ns[-WINDOW:])
    return all(abs(ns - middle) <= WITHIN * middle for ns in trace_ns[-AGREEING:])


def warm_up(
    call_ns: Callable[[], int], most_calls: int, most_s: float, least_s: float = 0.0
) -> tuple[list[int], bool]:
    """Call until the time settles, at most ``most_calls`` times or ``most_s`` seconds.

    Times that happen to agree settle nothing before ``least_s``: a forked process still copies pages then.
    call_ns makes one call and gives its nanoseconds. Gives the trace and whether it settled.
    """
    trace: list[int] = []
    start = perf_counter_ns()
    least, end = start + int(least_s * 1e9), start + int(most_s * 1e9)
    while len(trace) < most_calls:
        trace.append(call_ns())
        now = perf_counter_ns()
        if now >= least and settled(trace):
            return trace, True
        if now >= end:
            break
    return trace, False
