"""Peak extra memory, against allocations whose size is known, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys

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
