"""Peak extra memory, against allocations whose size is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attnbench.timing.memory import peak_extra_bytes

MIB = 1024 * 1024

TOLERANCE = 2.5 * MIB
"""The kernel counts resident pages in batches for each core, and other threads of the process that runs the
tests have heaps of their own; what it tells is right to about this much."""


def is_about(mib: int, call: Callable[[], object]) -> bool:
    """Once in three times at least: what other tests left behind may be freed meanwhile."""
    peaks = [peak_extra_bytes(call) for _ in range(3)]
    assert None not in peaks
    return any(peak is not None and abs(peak - mib * MIB) <= TOLERANCE for peak in peaks)


@pytest.mark.parametrize("mib", [8, 32, 100])
def test_a_known_allocation(mib: int) -> None:
    assert is_about(mib, lambda: np.ones(mib * MIB, dtype=np.uint8))


def test_what_is_freed_within_the_call_counts_at_its_peak() -> None:
    def call() -> int:
        big = np.ones(64 * MIB, dtype=np.uint8)
        size = int(big.size)
        del big
        return size

    assert is_about(64, call)


def test_two_at_once_count_twice_and_one_after_the_other_once() -> None:
    def together() -> object:
        return np.ones(32 * MIB, dtype=np.uint8), np.ones(32 * MIB, dtype=np.uint8)

    def in_turn() -> None:
        for _ in range(2):
            block = np.ones(32 * MIB, dtype=np.uint8)
            del block

    assert is_about(64, together)
    assert is_about(32, in_turn)


def test_what_is_kept_from_an_earlier_call_is_not_counted() -> None:
    kept: dict[str, object] = {}

    def call() -> None:
        if "weights" not in kept:
            kept["weights"] = np.ones(64 * MIB, dtype=np.uint8)

    peak = peak_extra_bytes(call)
    assert peak is not None
    assert peak <= TOLERANCE
