"""Peak extra memory: of known allocations, of a real device, and of an allocator that counts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing.memory import device_peak_extra_bytes, growth_per_call, peak_extra_bytes

PROGRAM = """
import json
import numpy as np
from attnbench.timing.memory import peak_extra_bytes

MIB = 1024 * 1024
kept = {}

def ones(mib):
    return np.ones(mib * MIB, dtype=np.uint8)

def freed_within():
    return int(ones(64).size)

def in_turn():
    for _ in range(2):
        block = ones(32)
        del block

def kept_from_the_first_call():
    if "weights" not in kept:
        kept["weights"] = ones(64)

calls = {
    "8": lambda: ones(8), "100": lambda: ones(100), "freed within": freed_within,
    "together": lambda: (ones(32), ones(32)), "in turn": in_turn, "kept": kept_from_the_first_call,
}
print(json.dumps({name: peak_extra_bytes(call) / MIB for name, call in calls.items()}))
"""
EXPECTED_MIB = {"8": 8, "100": 100, "freed within": 64, "together": 64, "in turn": 32, "kept": 0}
TOLERANCE_MIB = 2.5
"""The kernel counts resident pages in batches for each core."""


def test_peaks_of_known_allocations() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    peaks = json.loads(done.stdout)
    wrong = {name: peak for name, peak in peaks.items() if abs(peak - EXPECTED_MIB[name]) > TOLERANCE_MIB}
    assert set(peaks) == set(EXPECTED_MIB)
    assert wrong == {}


GROWING = """
import json
import numpy as np
from attnbench.timing.memory import growth_per_call, resident_bytes

KIB = 1024
kept, few, ring = [], {}, {}

def keep(kib):
    kept.append(np.ones(kib * KIB, np.uint8))

def keep_some():
    few[len(few) % 3] = np.ones(16 * 1024 * KIB, np.uint8)

def fill_a_cache():
    ring.setdefault(len(ring) % 40, np.ones(4 * 1024 * KIB, np.uint8)) if len(ring) < 40 else None

def garbage_in_a_circle():
    circle = [np.ones(1024 * KIB, np.uint8)]
    circle.append(circle)

calls = {
    "20 MiB": lambda: keep(20 * KIB), "100 KiB": lambda: keep(100), "50 KiB": lambda: keep(50),
    "freed": lambda: np.ones(8 * 1024 * KIB, np.uint8).sum(), "three in turn": keep_some,
    "a cache of 40": fill_a_cache, "a circle": garbage_in_a_circle,
}
found = {}
for name, call in calls.items():
    found[name] = growth_per_call(call, resident_bytes) / KIB
print(json.dumps(found))
"""


@pytest.mark.slow
def test_what_stays_with_every_call_is_found_and_caches_and_garbage_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    kept = {name: found.pop(name) for name in ("20 MiB", "100 KiB", "50 KiB")}
    assert found == dict.fromkeys(found, 0)
    # The allocator takes memory from the system in steps.
    assert kept == {
        "20 MiB": pytest.approx(20 * 1024, rel=0.05),
        "100 KiB": pytest.approx(100, rel=0.2),
        "50 KiB": pytest.approx(50, rel=0.2),
    }


@pytest.mark.parametrize("full", [1, 24, 33, 41, 64])
def test_a_cache_that_fills_slowly_and_then_answers_at_once_does_not_grow(full: int) -> None:
    cache: list[int] = []

    def call() -> None:
        if len(cache) < full:
            time.sleep(0.003)
            cache.append(1024 * 1024)

    assert growth_per_call(call, lambda: sum(cache)) == 0


@pytest.mark.parametrize("failing", [1, 2])
def test_a_call_that_fails_is_no_system_that_can_not_tell(failing: int) -> None:
    made: list[int] = []

    def call() -> None:
        made.append(1)
        if len(made) == failing:
            raise OSError("the backend's own file is gone")

    with pytest.raises(OSError, match="the backend's own"):
        peak_extra_bytes(call)


# --- memory of a device ---------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_known_allocation_on_a_real_device() -> None:
    def call() -> torch.Tensor:
        large = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
        return large[:1024].clone()

    assert 64 * 2**20 <= peak_extra_bytes(call, "cuda") < 65 * 2**20


class Allocator:
    """Stands for ``torch.cuda``. Work that was launched takes its memory when the host waits for it."""

    def __init__(self, held: int, peak: int) -> None:
        self.held, self.peak = held, max(held, peak)
        self.launched: list[int] = []

    def synchronize(self) -> None:
        for change in self.launched:
            self.held += change
            self.peak = max(self.peak, self.held)
        self.launched.clear()

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.held

    def memory_allocated(self) -> int:
        return self.held

    def max_memory_allocated(self) -> int:
        return self.peak


@given(
    st.integers(0, 2**30), st.integers(0, 2**30), st.lists(st.integers(0, 2**20), max_size=6),
    st.integers(0, 2**20), st.integers(0, 2**20),
)  # fmt: skip
def test_the_peak_is_that_of_a_call_after_the_first(
    held: int, before: int, taken: list[int], output: int, kept: int
) -> None:
    """Memory that was held, an earlier peak, and what the first call keeps do not count.

    A call takes these amounts one after the other, gives all back, and returns an output.
    """
    cuda, first = Allocator(held, before), [kept]

    def call() -> None:
        cuda.launched += [*(first.pop() for _ in list(first)), *taken, -sum(taken), output]

    assert device_peak_extra_bytes(call, cuda) == max(output, *accumulate(taken, initial=0))
