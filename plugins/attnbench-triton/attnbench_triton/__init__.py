"""Flash attention and recurrences in Triton for attnbench. Importing it imports no Triton."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_triton.backend import TRITON_FLASH, TRITON_INTERPRETED
from attnbench_triton.fla import FLA
from attnbench_triton.recurrent import TRITON_RECURRENT, TRITON_RECURRENT_INTERPRETED

__all__ = [
    "TRITON_FLASH", "TRITON_INTERPRETED", "TRITON_RECURRENT", "TRITON_RECURRENT_INTERPRETED",
    "attnbench_backends",
]  # fmt: skip


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the kernels on a GPU, the same in Triton's interpreter, and what fla computes on a CPU."""
    return TRITON_FLASH, TRITON_INTERPRETED, TRITON_RECURRENT, TRITON_RECURRENT_INTERPRETED, *FLA
