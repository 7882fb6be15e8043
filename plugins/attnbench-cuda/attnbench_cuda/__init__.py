"""Libraries for NVIDIA's GPUs as backends of attnbench. Importing it imports none of them."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_cuda.fla import FLA_CHUNKS, FLA_STEPS
from attnbench_cuda.flash_attn import FLASH_ATTN, FLASH_ATTN_KVCACHE, FLASH_ATTN_VARLEN
from attnbench_cuda.flash_attn_3 import FLASH_ATTN_3, FLASH_ATTN_3_VARLEN
from attnbench_cuda.flash_attn_4 import FLASH_ATTN_4, FLASH_ATTN_4_PAGED, FLASH_ATTN_4_VARLEN
from attnbench_cuda.flashinfer import (
    FLASHINFER_DECODE,
    FLASHINFER_GATED_DELTA,
    FLASHINFER_PAGED,
    FLASHINFER_PREFILL,
    FLASHINFER_RAGGED,
)
from attnbench_cuda.hub import KERNELS_FLASH_ATTN3
from attnbench_cuda.mamba import MAMBA_CHUNK_SCAN
from attnbench_cuda.sageattention import SAGEATTENTION
from attnbench_cuda.transformer_engine import TRANSFORMER_ENGINE
from attnbench_cuda.xformers import XFORMERS_ATTENTION, XFORMERS_PAGED, XFORMERS_VARLEN

DENSE = (
    FLASH_ATTN, FLASH_ATTN_3, FLASH_ATTN_4, KERNELS_FLASH_ATTN3, FLASHINFER_PREFILL, XFORMERS_ATTENTION,
    TRANSFORMER_ENGINE, SAGEATTENTION,
)  # fmt: skip
"""Attention of equal sequences."""
BATCHES = (
    FLASH_ATTN_VARLEN, FLASH_ATTN_KVCACHE, FLASH_ATTN_3_VARLEN, FLASH_ATTN_4_VARLEN, FLASH_ATTN_4_PAGED,
    FLASHINFER_RAGGED, FLASHINFER_PAGED, FLASHINFER_DECODE, XFORMERS_VARLEN, XFORMERS_PAGED,
)  # fmt: skip
"""Attention of packed sequences, and of pages."""
RECURRENCES = (FLA_CHUNKS, FLA_STEPS, FLASHINFER_GATED_DELTA, MAMBA_CHUNK_SCAN)
BACKENDS = (*DENSE, *BATCHES, *RECURRENCES)

__all__ = ["BACKENDS", "BATCHES", "DENSE", "RECURRENCES", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring one backend for each form of each library."""
    return BACKENDS
