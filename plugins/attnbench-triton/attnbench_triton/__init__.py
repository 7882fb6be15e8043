"""Flash attention in Triton for attnbench, with gradients. Importing it imports no Triton."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_triton.backend import TRITON_FLASH, TRITON_INTERPRETED

__all__ = ["TRITON_FLASH", "TRITON_INTERPRETED", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the kernels on a GPU, and the same in Triton's interpreter."""
    return TRITON_FLASH, TRITON_INTERPRETED
