"""Pinning the C allocator's thresholds, so that a call doesn't fault its pages in anew each time."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
_NEVER_TRIM = 2**31 - 1


def pin_allocator() -> bool:
    """Keep freed memory in the process (glibc); gives whether both thresholds were taken.

    glibc caps the mmap threshold at 32 MiB on 64-bit systems: larger arrays are still mapped anew.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    taken = mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) == 1
    return bool(mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM) == 1) and taken
