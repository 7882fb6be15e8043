"""How large the last cache before memory is."""

from __future__ import annotations

from pathlib import Path

UNKNOWN_CACHE_BYTES = 32 * 1024 * 1024
"""Taken where the system doesn't tell."""

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def last_level_cache_bytes(device: str, folder: Path = _CPU_CACHES) -> int:
    """Bytes of the largest cache that a core of the CPU sees, or of the L2 cache of a CUDA device.

    folder: where Linux describes the caches of a core.
    """
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    sizes = [_bytes(path) for path in folder.glob("index*/size")]
    return max(sizes, default=0) or UNKNOWN_CACHE_BYTES


def _bytes(path: Path) -> int:
    try:
        words = path.read_text().strip()
        return int(words.rstrip("KMG")) * _UNITS.get(words[-1:], 1)
    except (OSError, ValueError):
        return 0
