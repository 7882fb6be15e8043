"""From the samples of sets to one time and one ratio."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from attnbench.types.record import Block, SetLine

MESSAGE_NS = 2_000_000
"""More than a request and its answer take between two processes, on a busy machine too."""


def block_ns(block: Block) -> float:
    """The median time per call of a block, in nanoseconds."""
    return median(wall / block.calls for wall in block.wall_ns)


def set_median_ns(blocks: Sequence[Block]) -> float:
    """The median time per call over all samples of one backend in one set, in nanoseconds."""
    return median(wall / block.calls for block in blocks for wall in block.wall_ns)


def paired_log_ratio(blocks: Sequence[Block], baseline: Sequence[Block]) -> float | None:
    """The median over rounds of log(time / baseline's time in the same round); None without a pair."""
    base = {block.round: block_ns(block) for block in baseline}
    logs = [math.log(block_ns(b) / base[b.round]) for b in blocks if b.round in base]
    return median(logs) if logs else None


def set_medians_ms(sets: Iterable[SetLine], backend: str) -> list[float]:
    """A backend's set medians in milliseconds, of the sets that have samples of it."""
    return [set_median_ns(line.blocks[backend]) / 1e6 for line in sets if line.blocks.get(backend)]


def median_ms(sets: Iterable[SetLine], backend: str) -> float | None:
    """The median over sets of a backend's set median, in milliseconds; None where there are no samples."""
    medians = set_medians_ms(sets, backend)
    return median(medians) if medians else None


def clock_problem(sets: Iterable[SetLine], backend: str) -> str:
    """What makes the worker's clock doubtful against the parent's; "" for nothing.

    The parent waits for whole blocks: samples, calls before them, and messages. A worker that accounts
    for less than a fourth of that wait, messages left out, has not told its time.
    """
    blocks = [block for line in sets for block in line.blocks.get(backend, [])]
    told_ns = sum(sum(block.wall_ns) for block in blocks)
    asked_ns = sum(block.asked_ns - MESSAGE_NS for block in blocks if block.asked_ns)
    if asked_ns > 4 * told_ns:
        return (
            f"its samples add up to {told_ns / 1e6:.3g} ms by the worker's clock, "
            f"and took {asked_ns / 1e6:.3g} ms by the parent's"
        )
    return ""


def ratio(sets: Iterable[SetLine], backend: str, baseline: str) -> float | None:
    """Time over the baseline's time: the median over sets of the set's paired ratio; None without pairs."""
    logs = [
        log
        for line in sets
        if line.blocks.get(backend) and line.blocks.get(baseline)
        for log in [paired_log_ratio(line.blocks[backend], line.blocks[baseline])]
        if log is not None
    ]
    return math.exp(median(logs)) if logs else None


def timed_calls(sets: Iterable[SetLine], backend: str) -> int:
    """How many calls were made inside timed samples."""
    return sum(b.calls * len(b.wall_ns) for line in sets for b in line.blocks.get(backend, []))
