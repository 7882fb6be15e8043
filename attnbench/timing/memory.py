"""Peak extra memory of one call, on the CPU and on a CUDA device."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnbench.timing.allocator import return_freed_memory


def cuda_peak_extra_bytes(call: Callable[[], object], cuda: Any = None) -> int:
    """Bytes of the device that one call takes at its peak beyond those before it, its output included.

    The call is made once before, so that what it keeps is not counted. Memory that a library takes from the
    driver itself, past torch's allocator, is not seen.
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
    """Resident bytes at the peak of one call beyond those before it, its output included.

    The call is made once before, so that what it keeps is not counted, and freed memory goes back to
    the system first, so that reuse of it is. Pages are counted, so small calls show as a few
    kilobytes. None where the system doesn't tell (only Linux does). The process is for nothing else
    afterwards: its allocator gives large arrays back at once from then on.
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
