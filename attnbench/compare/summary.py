"""From the samples of sets to one time and one ratio."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from attnbench.types.record import Block, SetLine


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


def median_ms(sets: Iterable[SetLine], backend: str) -> float | None:
    """The median over sets of a backend's set median, in milliseconds; None where there are no samples."""
    medians = [set_median_ns(line.blocks[backend]) for line in sets if line.blocks.get(backend)]
    return median(medians) / 1e6 if medians else None


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
