"""What the samples of a device are, in words for its record."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.types.record import DeviceMode, SetLine

MODE_NOTES: dict[DeviceMode, str] = {
    "batch": "batch: back-to-back calls replayed from a CUDA graph, caches hot; launching is not timed",
    "launches": (
        "batch, launched: back-to-back calls that can't be captured in a CUDA graph, caches hot; where "
        "launching is slower than the device, it's launching that is timed"
    ),
    "cold": "cold: single launches, the L2 cache overwritten before each",
}


def mode_notes(sets: Sequence[SetLine], backend: str) -> list[str]:
    """What the samples of a backend are, a note for each kind; none on the CPU.

    Several where a call could be captured in one process and not in another.
    """
    modes = {block.mode for line in sets for block in line.blocks.get(backend, [])}
    return [note for mode, note in MODE_NOTES.items() if mode in modes]
