"""Work that a sample doesn't show: CPU time of other threads of the process while calls of one were timed."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.types.record import SetLine

MOST_SHARE, MOST_NS_A_STRETCH = 0.2, 2_000_000
"""What other threads may take: a fifth of the CPU time of the samples, and what libraries take for
themselves in a stretch."""


def hidden_work(sets: Iterable[SetLine], backend: str, threads: int) -> str:
    """What other threads did while a backend was timed on one thread, in words; "" for nothing to speak of.

    They may work for a call whose time ends before they do, or between its turns. On a device, and where a
    case has more threads, such threads are nothing special.
    """
    blocks = [block for line in sets for block in line.blocks.get(backend, []) if not block.mode]
    own = sum(sum(block.cpu_ns) for block in blocks)
    others = sum(block.others_cpu_ns for block in blocks)
    if threads != 1 or others <= MOST_SHARE * own + MOST_NS_A_STRETCH * len(blocks):
        return ""
    return (
        f"other threads of its process had {others / 1e6:.0f} ms of CPU time while its samples, "
        f"in a case of one thread, had {own / 1e6:.0f} ms"
    )
