"""Peak extra memory of one call, on the CPU and on a CUDA device."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnbench.timing.allocator import return_freed_memory


def cuda_peak_extra_bytes(call: Callable[[], object], cuda: Any = None) -> int:
    """Return the device memory that one call takes at its peak, its output included, in bytes.

    The call runs once before, so memory that it keeps does not count. Memory that a library takes from the
    driver, past torch's allocator, does not count either.
    """
    if cuda is None:
        import torch

        cuda = torch.cuda
    call()
    cuda.synchronize()
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    output = call()
    cuda.synchronize()
    peak = cuda.max_memory_allocated()
    del output
    return int(max(0, peak - before))


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def peak_extra_bytes(call: Callable[[], object]) -> int | None:
    """Return the resident memory that one call adds at its peak, its output included, in bytes.

    The call runs once before, so memory that it keeps does not count. Freed memory goes back to the system
    first, so memory that the call reuses does count. The unit is the page, so small calls show as a few
    kilobytes. None where the system has no such counter; only Linux has. Afterwards the process is of no
    further use for timing: its allocator returns large arrays at once.
    """
    return_freed_memory()
    call()
    gc.collect()
    _give_back_free_memory()
    try:
        _CLEAR.write_text(_RESET_PEAK)
        before = _status_kib("VmRSS")
    except OSError:
        return None
    output = call()
    peak = _status_kib("VmHWM")
    del output
    return max(0, peak - before) * 1024


def _status_kib(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise OSError(f"{_STATUS} has no {key}")


def _give_back_free_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
