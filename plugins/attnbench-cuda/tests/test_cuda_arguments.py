"""Masks as bands, what each backend refuses and takes, and what the arguments need in memory."""

from __future__ import annotations

import pytest
import torch
from attnbench_cuda.bands import Band, band_of
from attnbench_cuda.flash_attn import FLASH_ATTN, FLASH_ATTN_KVCACHE, FLASH_ATTN_VARLEN
from attnbench_cuda.flash_attn_3 import FLASH_ATTN_3, FLASH_ATTN_3_VARLEN
from attnbench_cuda.flash_attn_4 import FLASH_ATTN_4, FLASH_ATTN_4_VARLEN
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
from attnbench_cuda.xformers import XFORMERS_ATTENTION, XFORMERS_PAGED, XFORMERS_VARLEN, aligned
from cuda_setups import case_of


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        ("none", Band(None, None)),
        ("causal:lower_right", Band(None, 0)),
        ("window:9", Band(8, 8)),
        ("causal:lower_right+window:16", Band(15, 0)),
        ("reach:3,2", Band(3, 2)),
        ("causal:lower_right+reach:*,2", Band(None, 0)),
    ],
)
def test_masks_as_bands(mask: str, band: Band) -> None:
    assert band_of(case_of(f"attention/dot/H2-Lq8-Lk16-D64/{mask}")[0]) == band


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ("causal", "puts the last query at the last key"),
        ("causal:lower_right+padding", "no padding"),
        ("bool", "no explicit mask"),
        ("causal:lower_right+dilated:2", "no dilation"),
        ("causal:lower_right+window:4+first:2", "no set of first keys"),
    ],
)
def test_masks_that_are_no_bands(mask: str, reason: str) -> None:
    assert reason in band_of(case_of(f"attention/dot/H2-Lq8-Lk16-D64/{mask}")[0])


@pytest.mark.parametrize(
    ("backend", "text", "reason"),
    [
        (FLASH_ATTN, "attention/sinks/H2-L8-D64", "no sinks"),
        (FLASH_ATTN, "attention/dot/H2-L8-D512", "256 at most"),
        (FLASH_ATTN, "attention/alibi/H2-L8-D64/both", "no gradient of the slopes"),
        (FLASH_ATTN, "attention/dot/H2-L8-D64/float", "no explicit mask"),
        (FLASH_ATTN, "attention/softcap/H2-L8-D64/dropout0.2", "no dropout together with a soft cap"),
        (FLASH_ATTN_3, "attention/dot/H2-L8-D44", "multiple of 8"),
        (FLASH_ATTN_3, "attention/dot/H2-L8-D96-Dv64", "here D = 96 and Dv = 64"),
        (FLASH_ATTN_3, "attention/dot/H2-L8-D192-Dv128/both", "with Dv = D alone"),
        (FLASH_ATTN_3, "attention/alibi/H2-L8-D64", "no bias"),
        (FLASH_ATTN_3, "attention/dot/H2-Lq8-Lk9-D64/causal", "first at the first"),
        (FLASH_ATTN_4, "attention/dot/H2-L8-D192", "(192, 128)"),
        (FLASH_ATTN_4, "attention/dot/H2-Lq9-Lk8-D64/causal:lower_right", "a query without a key"),
        (FLASH_ATTN_4, "attention/dot/H2-Lq19-Lk8-D64/window:9", "a query without a key"),
        (FLASH_ATTN_4, "attention/alibi/H2-L8-D64", "function of its own"),
        (KERNELS_FLASH_ATTN3, "attention/sinks/H2-L8-D64", "no sink"),
        (TRANSFORMER_ENGINE, "attention/dot/H2-Lq9-Lk8-D64/causal:lower_right", "a query without a key"),
        (TRANSFORMER_ENGINE, "attention/dot/H2-L8-D64/padding", "no padding"),
        (TRANSFORMER_ENGINE, "attention/sinks/H2-L8-D64", "no sink"),
        (FLASHINFER_PREFILL, "attention/dot/B2-H2-L8-D64", "one sequence; here B = 2"),
        (FLASHINFER_PREFILL, "attention/dot/H2-L8-D80", "here D = 80"),
        (FLASHINFER_PREFILL, "attention/dot/H2-L8-D64/float", "adds no numbers"),
        (XFORMERS_ATTENTION, "attention/softcap/H2-L8-D64", "no soft cap"),
        (XFORMERS_ATTENTION, "attention/dot/H4-Hkv2-L8-D64/both", "here Hkv = 2"),
        (FLASH_ATTN_VARLEN, "attention/dot/2q1s8-H2-D64/paged:128", "multiple of 256 keys, not 128"),
        (FLASH_ATTN_VARLEN, "attention/dot/q1s8_q0s8-H4-Hkv2-D64/packed", "one has none"),
        (FLASH_ATTN_VARLEN, "attention/dot/q8_q3s8-H2-D64/causal/packed", "Lq = 3 and Lk = 8"),
        (FLASH_ATTN_VARLEN, "attention/cosine/2q8-H2-D64/packed", "maps no queries and keys"),
        (FLASH_ATTN_KVCACHE, "attention/dot/q1s8_q2s8-H2-D64/paged:256", "as many queries of each"),
        (FLASH_ATTN_3_VARLEN, "attention/sinks/2q8-H2-D64/packed", "no sink"),
        (FLASH_ATTN_4_VARLEN, "attention/dot/q8_q1s0-H2-D64/packed", "a query without a key"),
        (FLASH_ATTN_4_VARLEN, "attention/sinks/2q8-H2-D64/packed/lse", "counts the sink"),
        (FLASHINFER_RAGGED, "attention/dot/2q8-H2-D64/reach:4,2/packed", "no window to the right"),
        (FLASHINFER_RAGGED, "attention/dot/q8_q9s2-H2-D64/causal:lower_right/packed", "without a key"),
        (FLASHINFER_PAGED, "attention/dot/q1s8_q0-H2-D64/paged", "can't write a sequence without keys"),
        (FLASHINFER_DECODE, "attention/dot/q1s8_q2s8-H2-D64/paged", "one query of each sequence"),
        (XFORMERS_VARLEN, "attention/dot/2q8-H2-D64/window:4/packed", "without a causal mask"),
        (XFORMERS_VARLEN, "attention/dot/q9s8_q1-H2-D64/causal:lower_right/packed", "without a key"),
        (XFORMERS_PAGED, "attention/dot/2q1s8-H2-D64/causal:lower_right+window:4/paged:256", "no window"),
        (XFORMERS_PAGED, "attention/dot/2q1s8-H2-D64/paged", "multiple of 256 keys, not 16"),
        (FLASHINFER_GATED_DELTA, "recurrent/delta/2q8-H2-D64/packed", "D = Dv = 128; here D = 64"),
        (MAMBA_CHUNK_SCAN, "recurrent/gated/H2-L8-D64", "decays in float32 alone"),
        (SAGEATTENTION, "attention/dot/H2-Lq8-Lk9-D64/causal", "no mask but a causal one"),
        (SAGEATTENTION, "attention/dot/H2-L8-D160", "128 at most"),
    ],
)
def test_what_each_refuses(backend, text: str, reason: str) -> None:
    assert reason in (backend.supports(*case_of(text)) or "")


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (FLASH_ATTN, "attention/alibi/H4-Hkv2-L8-D64/causal"),
        (FLASH_ATTN_3, "attention/dot/H2-L8-D192-Dv128/causal"),
        (FLASH_ATTN_3, "attention/dot/H2-L8-D64-Dv512"),
        (FLASH_ATTN_4, "attention/sinks/H2-L8-D192-Dv128/causal/both"),
        (FLASH_ATTN_4, "attention/dot/H2-Lq16-Lk8-D64/window:9"),
        (FLASH_ATTN, "attention/dot/H2-Lq8-Lk9-D64/reach:4,0"),
        (FLASH_ATTN_VARLEN, "attention/dot/q8_2q3-H2-D64/causal/packed"),
        (TRANSFORMER_ENGINE, "attention/dot/H2-Lq9-Lk8-D64/causal/both"),
        (FLASHINFER_PREFILL, "attention/softcap/H4-Hkv2-L8-D64/bool"),
        (XFORMERS_ATTENTION, "attention/sinks/B2-H2-Lq8-Lk16-D40-Dv8/causal+padding/both"),
        (SAGEATTENTION, "attention/cosine/H2-L8-D64/causal"),
    ],
)
def test_what_each_takes(backend, text: str) -> None:
    given = text.replace("/both", "")
    assert backend.supports(*case_of(given)) is None


def test_rows_of_a_bias_are_aligned() -> None:
    given = torch.arange(15.0).view(1, 1, 3, 5)
    assert torch.equal(aligned(given), given)
    assert aligned(given).stride() == (24, 24, 8, 1)
