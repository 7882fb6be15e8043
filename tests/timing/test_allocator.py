"""Pinned thresholds, by the page faults of a process that frees and asks again; and the size of the cache."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.timing.allocator import UNKNOWN_CACHE_BYTES, last_level_cache_bytes

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_pinned_process_keeps_the_pages_that_it_frees() -> None:
    assert faults("pinned", 8) <= 16
    assert faults("free", 8) >= 2048
    assert faults("pinned", 33) >= 4 * 33 * 256, "arrays over 32 MiB are mapped anew all the same"
    assert faults("reserved", 8) <= 16, "what is reserved is there at the first use"


def caches(folder: Path, *sizes: str) -> Path:
    for number, size in enumerate(sizes):
        (folder / f"index{number}").mkdir()
        (folder / f"index{number}" / "size").write_text(size)
    return folder


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (("32K\n", "32K\n", "512K\n", "32768K\n"), 32 * 1024**2),
        (("48K\n", "2M\n"), 2 * 1024**2),
        (("1G\n",), 1024**3),
        (("65536\n",), 65536),
        (("rubbish\n", "\n", "K\n", "64K\n"), 64 * 1024),
        (("rubbish\n",), UNKNOWN_CACHE_BYTES),
        ((), UNKNOWN_CACHE_BYTES),
    ],
)
def test_the_largest_cache_counts(tmp_path: Path, sizes: tuple[str, ...], expected: int) -> None:
    assert last_level_cache_bytes("cpu", caches(tmp_path, *sizes)) == expected
