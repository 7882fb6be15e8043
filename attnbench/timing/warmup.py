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


def warm_up(call_ns: Callable[[], int], most_calls: int, most_s: float) -> tuple[list[int], bool]:
    """Call until the time settles, at most ``most_calls`` times or ``most_s`` seconds.

    call_ns makes one call and gives its nanoseconds. Gives the trace and whether it settled.
    """
    trace: list[int] = []
    end = perf_counter_ns() + int(most_s * 1e9)
    while len(trace) < most_calls:
        trace.append(call_ns())
        if settled(trace):
            return trace, True
        if perf_counter_ns() >= end:
            break
    return trace, False
