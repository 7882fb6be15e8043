"""Setting the C allocator's thresholds: for timing, or for seeing what a call needs."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
_NEVER_TRIM = 2**31 - 1
_DEFAULT_MMAP_THRESHOLD = 128 * 1024


def pin_allocator() -> bool:
    """Keep freed memory in the process (glibc); gives whether both thresholds were taken.

    glibc caps the mmap threshold at 32 MiB on 64-bit systems: larger arrays are still mapped anew.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    taken = mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) == 1
    return bool(mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM) == 1) and taken


def return_freed_memory() -> bool:
    """Give every large array back to the system when it is freed (glibc); gives whether that was taken.

    Left alone, glibc raises its mmap threshold to the largest array freed so far; from then on such arrays
    come from a heap that fragments, and how far it grows is a matter of luck.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _DEFAULT_MMAP_THRESHOLD) == 1)
