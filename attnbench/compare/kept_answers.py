"""Calls that take longer where their inputs have just been written anew than where they stayed as they were.

A backend that compares its inputs with those of the call before, all of them, and gives the same answer
again is never wrong. What it does not do shows nowhere but in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median, median_low, quantiles

from attnbench.types.record import Block, SetLine

FEWEST = 8
"""Calls on inputs written anew, without which nothing is said."""
MOST_FACTOR, MOST_READS = 1.15, 2
"""What such a call of a right kernel may take: so many times what the others take, and so many times reading
what writing has driven out of caches; and ``cold_ns`` more."""

LEAST_COLD_NS, MOST_COLD_NS = 50_000, 100_000


def cold_ns(others_ns: float) -> float:
    """What code may take that has not run for a moment: as long as such a call takes, within bounds.

    Where others use the caches too, small calls of right kernels took their time once more, 41 µs of it. Who
    only gives again what it has takes little time, and is allowed the least.
    """
    return min(max(others_ns, LEAST_COLD_NS), MOST_COLD_NS)


def kept_answers(sets: Iterable[SetLine], backend: str, threads: int, read_ns: float) -> str:
    """What tells that calls on inputs that stayed do less than others, in words; "" for nothing.

    Three of four calls on inputs written anew must be slower than that. read_ns: the least time for the bytes
    of a call. Several threads have gone to sleep while inputs were written; a device is not judged.
    """
    told = [each for line in sets for each in _told(line.blocks.get(backend, []))]
    if threads != 1 or len(told) < FEWEST:
        return ""
    beyond = [
        renewed - MOST_FACTOR * others - cold_ns(others) - MOST_READS * read_ns for renewed, others in told
    ]
    if quantiles(beyond, n=4, method="inclusive")[0] <= 0:
        return ""
    least = quantiles([renewed for renewed, _ in told], n=4, method="inclusive")[0]
    typical = median(others for _, others in told)
    return (
        f"its first calls on inputs written anew take {least / 1e6:.3g} ms or more (in three of four), "
        f"and its others {typical / 1e6:.3g} ms (median), as where answers are kept"
    )


def _told(blocks: Iterable[Block]) -> Iterator[tuple[float, float]]:
    """ns of the call on inputs written anew, and of a call of the same stretch, where there are others."""
    for block in blocks:
        if block.renewed_ns > 0 and block.calls * len(block.wall_ns) > 1:
            yield block.renewed_ns, median_low([wall / block.calls for wall in block.wall_ns])
