"""Libraries for NVIDIA's GPUs as backends of attnbench. Importing it imports none of them."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_cuda.flash_attn import FLASH_ATTN
from attnbench_cuda.flashinfer import FLASHINFER_PREFILL
from attnbench_cuda.sageattention import SAGEATTENTION
from attnbench_cuda.xformers import XFORMERS_ATTENTION

__all__ = ["FLASHINFER_PREFILL", "FLASH_ATTN", "SAGEATTENTION", "XFORMERS_ATTENTION", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring one backend for each library."""
    return FLASH_ATTN, FLASHINFER_PREFILL, XFORMERS_ATTENTION, SAGEATTENTION
