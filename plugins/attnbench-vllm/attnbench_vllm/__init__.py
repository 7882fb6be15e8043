"""vLLM's kernels for CPUs as backends of attnbench: attention with a paged cache, writers, recurrences."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_vllm.backend import VLLM
from attnbench_vllm.latent import VLLM_MLA_DECODE
from attnbench_vllm.recurrences import VLLM_GATED_DELTA_CHUNKS, VLLM_MAMBA2_SCAN, VLLM_MAMBA2_STEP
from attnbench_vllm.writers import VLLM_CONCAT_AND_CACHE_MLA, VLLM_QUANTISE_INT8, VLLM_RESHAPE_AND_CACHE


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring attention, the writers of caches, and recurrences."""
    return (
        VLLM,
        VLLM_MLA_DECODE,
        VLLM_RESHAPE_AND_CACHE,
        VLLM_CONCAT_AND_CACHE_MLA,
        VLLM_QUANTISE_INT8,
        VLLM_GATED_DELTA_CHUNKS,
        VLLM_MAMBA2_SCAN,
        VLLM_MAMBA2_STEP,
    )
