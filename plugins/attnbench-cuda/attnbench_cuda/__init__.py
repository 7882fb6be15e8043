"""Libraries for NVIDIA's GPUs as backends of attnbench. Importing it imports none of them."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_cuda.flash_attn import FLASH_ATTN
from attnbench_cuda.flash_attn_3 import FLASH_ATTN_3
from attnbench_cuda.flash_attn_4 import FLASH_ATTN_4
from attnbench_cuda.flashinfer import FLASHINFER_PREFILL
from attnbench_cuda.hub import KERNELS_FLASH_ATTN3
from attnbench_cuda.sageattention import SAGEATTENTION
from attnbench_cuda.transformer_engine import TRANSFORMER_ENGINE
from attnbench_cuda.xformers import XFORMERS_ATTENTION

BACKENDS = (
    FLASH_ATTN, FLASH_ATTN_3, FLASH_ATTN_4, KERNELS_FLASH_ATTN3, FLASHINFER_PREFILL, XFORMERS_ATTENTION,
    TRANSFORMER_ENGINE, SAGEATTENTION,
)  # fmt: skip

__all__ = ["BACKENDS", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring one backend for each library."""
    return BACKENDS
