"""ggml's attention and recurrences on its CPU backend, as backends of attnbench."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_ggml.attention import GGML_FLASH_ATTN, GGML_FLASH_ATTN_BLOCKS
from attnbench_ggml.recurrences import (
    GGML_GATED_DELTA_NET,
    GGML_GATED_LINEAR_ATTN,
    GGML_RWKV_WKV7,
    GGML_SSM_SCAN,
)
from attnbench_ggml.writers import GGML_QUANTISE_ROW


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring attention, four recurrences, and a writer."""
    return (
        GGML_FLASH_ATTN,
        GGML_FLASH_ATTN_BLOCKS,
        GGML_GATED_DELTA_NET,
        GGML_GATED_LINEAR_ATTN,
        GGML_RWKV_WKV7,
        GGML_SSM_SCAN,
        GGML_QUANTISE_ROW,
    )
