"""Peak extra memory of one call on a CUDA device, by torch's own allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class CudaMemory(Protocol):
    """What is used of ``torch.cuda``; its documentation holds."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def reset_peak_memory_stats(self) -> None:
        """Let the peak be what is allocated now."""

    def memory_allocated(self) -> int:
        """Bytes allocated now."""

    def max_memory_allocated(self) -> int:
        """Bytes allocated at the peak."""


def cuda_peak_extra_bytes(call: Callable[[], object], cuda: CudaMemory | None = None) -> int:
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
    return max(0, peak - before)
