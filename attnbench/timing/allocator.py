"""The C allocator's thresholds, and the size of the last cache before memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
from pathlib import Path

from attnbench.cases.memory import read, whole_number
from attnbench.types.device import DEVICES

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
_NEVER_TRIM = 2**31 - 1
_FIRST_THRESHOLD = 128 * 1024

MOST_RESERVED_BYTES = 64 * 1024 * 1024
"""The most heap that a worker reserves; all workers of a repetition hold theirs at once. Beyond it calls
mostly need arrays of over 32 MiB, which no heap holds."""
_BLOCK_BYTES = 16 * 1024 * 1024
_MADV_POPULATE_WRITE = 23
_SMALL_FAULTS = 1024


def _set_threshold(option: int, size: int) -> bool:
    """Set a threshold of glibc, the C library of every wheel of torch; return whether it accepted that."""
    return bool(ctypes.CDLL(None).mallopt(option, size) == 1)


def pin_allocator() -> bool:
    """Keep freed memory in the process (glibc); return whether glibc accepted both thresholds.

    glibc caps the mmap threshold at 32 MiB on 64-bit systems, so larger arrays are still mapped anew.
    """
    taken = _set_threshold(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    return _set_threshold(_M_TRIM_THRESHOLD, _NEVER_TRIM) and taken


def return_freed_memory() -> None:
    """Return every large array to the system when it is freed, and the free end of the heap at once (glibc).

    By default glibc raises its mmap threshold to the largest array freed so far. From then on such arrays
    come from a heap that fragments, and its growth depends on chance. The heap's free end has a threshold
    too, and serves first.
    """
    _set_threshold(_M_MMAP_THRESHOLD, _FIRST_THRESHOLD)
    _set_threshold(_M_TRIM_THRESHOLD, _FIRST_THRESHOLD)
    ctypes.CDLL(None).malloc_trim(0)


def room_bytes(faults: int, output_bytes: int) -> int:
    """Return the bytes of heap that calls need: twice those of the first call, or four times if it took few.

    Later calls must find space between the holes that calls leave. The first call may find space that
    reading the inputs left.
    """
    return max(2 * (faults + min(faults, _SMALL_FAULTS)) * mmap.PAGESIZE, 2 * output_bytes)


def reserve(size: int) -> None:
    """Reserve ``size`` bytes of free heap that are backed by memory (glibc, thresholds pinned).

    Calls leave holes of other sizes, so without this the heap grows for many calls, at two microseconds a
    page. The limit is ``MOST_RESERVED_BYTES`` and an eighth of the data that the process may have, since
    large arrays, which are mapped, need the rest.
    """
    import resource

    most, allowed = MOST_RESERVED_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[0]
    if allowed != resource.RLIM_INFINITY:
        most = min(most, allowed // 8)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    # Blocks below the mmap threshold come from the heap; freed together they are one piece again.
    whole, rest = divmod(min(size, most), _BLOCK_BYTES)
    blocks = [(libc.malloc(each), each) for each in [_BLOCK_BYTES] * whole + [rest]]
    for block, each in blocks:
        if block:
            _back(libc, block, each)
    for block, _ in blocks:
        libc.free(block)


def _back(libc: ctypes.CDLL, address: int, size: int) -> None:
    """Back the pages of a block by memory: by one request where Linux has it (5.14), else by writing to them.

    Where memory is short nothing is written, since this only saves time.
    """
    page = mmap.PAGESIZE
    begin, end = -(-address // page) * page, (address + size) // page * page
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if end <= begin or libc.madvise(begin, end - begin, _MADV_POPULATE_WRITE) == 0:
        return
    if ctypes.get_errno() == errno.EINVAL:
        ctypes.memset(address, 0, size)


UNKNOWN_CACHE_BYTES = 32 * 1024 * 1024
"""The assumed size where the system does not state one."""

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def last_level_cache_bytes(device: str, folder: Path = _CPU_CACHES) -> int:
    """Return the bytes of the largest cache of a CPU core, or of the L2 cache of a CUDA device.

    folder: the folder in which Linux describes the caches of a core.
    """
    if not DEVICES[device].on_host:
        import torch

        module = torch.get_device_module(device)
        known = module.get_device_properties(module.current_device())
        return int(getattr(known, "L2_cache_size", 0)) or UNKNOWN_CACHE_BYTES
    sizes = [_bytes(path) for path in folder.glob("index*/size")]
    return max(sizes, default=0) or UNKNOWN_CACHE_BYTES


def _bytes(path: Path) -> int:
    words = read(path).strip()
    return (whole_number(words.rstrip("KMG")) or 0) * _UNITS.get(words[-1:], 1)
