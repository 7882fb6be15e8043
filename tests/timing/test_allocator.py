"""Pinned thresholds, seen by the page faults of a process that frees and asks again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")

FAULTS = """
import ctypes, resource, sys
from attnbench.timing.allocator import pin_allocator, reserve

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size, count = int(sys.argv[2]) << 20, 4

def use_and_free():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(size) for _ in range(count)]
    for block in blocks:
        for page in range(0, size, 4096):
            ctypes.c_char.from_address(block + page).value = b"x"
    for block in blocks:
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] != "free":
    assert pin_allocator()
if sys.argv[1] == "reserved":
    # As large as all blocks together with what separates them.
    reserve(count * size + (1 << 20))
else:
    use_and_free()
    use_and_free()
print(use_and_free())
"""


def faults(how: str, mib: int) -> int:
    command = [sys.executable, "-c", FAULTS, how, str(mib)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


@glibc
def test_a_pinned_process_keeps_the_pages_that_it_frees() -> None:
    assert faults("pinned", 8) <= 16
    assert faults("free", 8) >= 2048


@glibc
def test_arrays_over_32_mib_are_mapped_anew_all_the_same() -> None:
    assert faults("pinned", 33) >= 4 * 33 * 256


@glibc
def test_what_is_reserved_is_there_at_the_first_use() -> None:
    assert faults("reserved", 8) <= 16
