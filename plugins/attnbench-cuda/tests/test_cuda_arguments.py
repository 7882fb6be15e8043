"""What each library's function is told, by stand-ins that compute it by torch or write it down."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from attnbench_cuda import FLASH_ATTN, FLASHINFER_PREFILL, SAGEATTENTION, XFORMERS_ATTENTION
from attnbench_cuda import flash_attn as ours
from attnbench_cuda.bands import Band, band_of
from attnbench_cuda.xformers import aligned
from cuda_setups import case_of, inputs_of, setup_of
from torch.nn.functional import scaled_dot_product_attention


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        ("none", Band(None, None)),
        ("causal:lower_right", Band(None, 0)),
        ("window:9", Band(8, 8)),
        ("causal:lower_right+window:16", Band(15, 0)),
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
    ],
)
def test_masks_that_are_no_bands(mask: str, reason: str) -> None:
    assert reason in band_of(case_of(f"attention/dot/H2-Lq8-Lk16-D64/{mask}")[0])


def test_flash_attn_is_told_window_cap_and_slopes() -> None:
    window = ours.arguments(setup_of("attention/softcap/H2-L16-D64/window:9"))
    assert window == {
        "dropout_p": 0.0, "softmax_scale": 0.125, "causal": False, "window_size": (8, 8), "softcap": 2.0,
    }  # fmt: skip
    causal = ours.arguments(setup_of("attention/scaled_dot/H2-L16-D64/causal+window:9"))
    assert (causal["causal"], causal["window_size"]) == (True, (8, 0))
    slopes = ours.arguments(setup_of("attention/alibi/H2-L16-D64/causal"))["alibi_slopes"]
    assert slopes.dtype == torch.float32
    assert slopes.tolist() == [2**-4, 2**-8]


@pytest.mark.parametrize(
    ("backend", "text", "reason"),
    [
        (FLASH_ATTN, "attention/sinks/H2-L8-D64", "no sinks"),
        (FLASH_ATTN, "attention/dot/H2-L8-D512", "256 at most"),
        (FLASH_ATTN, "attention/alibi/H2-L8-D64/both", "no gradient of the slopes"),
        (FLASH_ATTN, "attention/dot/H2-L8-D64/float", "no explicit mask"),
        (FLASH_ATTN, "attention/softcap/H2-L8-D64/dropout0.2", "no dropout together with a soft cap"),
        (FLASHINFER_PREFILL, "attention/dot/B2-H2-L8-D64", "one sequence; here B = 2"),
        (FLASHINFER_PREFILL, "attention/dot/H2-L8-D80", "here D = 80"),
        (FLASHINFER_PREFILL, "attention/dot/H2-L8-D64/float", "adds no numbers"),
        (XFORMERS_ATTENTION, "attention/softcap/H2-L8-D64", "no soft cap"),
        (XFORMERS_ATTENTION, "attention/dot/H4-Hkv2-L8-D64/both", "here Hkv = 2"),
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
        (FLASHINFER_PREFILL, "attention/softcap/H4-Hkv2-L8-D64/bool"),
        (XFORMERS_ATTENTION, "attention/sinks/B2-H2-Lq8-Lk16-D40-Dv8/causal+padding/both"),
        (SAGEATTENTION, "attention/cosine/H2-L8-D64/causal"),
    ],
)
def test_what_each_takes(backend, text: str) -> None:
    given = text.replace("/both", "")
    assert backend.supports(*case_of(given)) is None


def stand_in(monkeypatch: pytest.MonkeyPatch, module: str, **functions: Any) -> None:
    made = ModuleType(module)
    made.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, module, made)


def expected(setup, q, k, v, keep=None) -> torch.Tensor:
    """By torch, of tensors (B, L, heads, D)."""
    each = (x.transpose(1, 2) for x in (q, k, v))
    scale = setup.scoring.dot.scale
    return scaled_dot_product_attention(*each, attn_mask=keep, scale=scale, enable_gqa=True).transpose(1, 2)


def test_flashinfer_gets_one_sequence_and_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of("attention/scaled_dot/H4-Hkv2-L8-D64/bool")
    q, k, v = inputs_of(setup)
    told: dict[str, Any] = {}

    def single(q, k, v, **named) -> torch.Tensor:
        told.update(named)
        return expected(setup, q[None], k[None], v[None], named["custom_mask"])[0]

    stand_in(monkeypatch, "flashinfer", single_prefill_with_kv_cache=single)
    out = FLASHINFER_PREFILL.prepare(setup)(q, k, v)
    assert (told["kv_layout"], told["sm_scale"]) == ("NHD", 0.125)
    keep = told["custom_mask"]
    assert keep.shape == (8, 8)
    empty = ~keep.any(-1)
    assert float(out[0, empty].abs().max()) == 0
    torch.testing.assert_close(out[0, ~empty], expected(setup, q, k, v, keep)[0, ~empty])


def test_flashinfer_is_told_the_window_to_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    stand_in(
        monkeypatch,
        "flashinfer",
        single_prefill_with_kv_cache=lambda q, *_, **named: told.update(named) or q,
    )
    setup = setup_of("attention/dot/H2-L16-D64/causal+window:9")
    FLASHINFER_PREFILL.prepare(setup)(*inputs_of(setup))
    assert (told["causal"], told["window_left"], told["logits_soft_cap"]) == (True, 8, None)


def test_xformers_gets_groups_bias_and_rows_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of("attention/scaled_dot/H4-Hkv2-Lq9-Lk5-D16/causal:lower_right")
    q, k, v = inputs_of(setup)
    biases = []

    def attention(q, k, v, *, attn_bias, p, scale) -> torch.Tensor:
        biases.append(attn_bias)
        assert q.shape == (1, 9, 2, 2, 16)
        assert k.shape == (1, 5, 2, 2, 16)
        flat = (x.flatten(2, 3).transpose(1, 2) for x in (q, k, v))
        out = scaled_dot_product_attention(*flat, attn_mask=attn_bias.flatten(1, 2), dropout_p=p, scale=scale)
        return out.transpose(1, 2).unflatten(2, (2, 2))

    stand_in(monkeypatch, "xformers.ops", memory_efficient_attention=attention)
    out = XFORMERS_ATTENTION.prepare(setup)(q, k, v)
    assert out.shape == (1, 9, 4, 16)
    assert float(out[:, :4].abs().max()) == 0
    keep = torch.ones(9, 5, dtype=torch.bool).tril(-4)
    torch.testing.assert_close(out[:, 4:], expected(setup, q, k, v, keep)[:, 4:])
    assert biases[0].stride(-2) == 8


def test_xformers_has_causal_masks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    stand_in(
        monkeypatch,
        "xformers.ops",
        memory_efficient_attention=lambda q, k, v, **named: told.update(named) or q,
        LowerTriangularMask=lambda: "lower triangular",
    )
    setup = setup_of("attention/scaled_dot/H2-L16-D64/causal")
    XFORMERS_ATTENTION.prepare(setup)(*inputs_of(setup))
    assert told == {"attn_bias": "lower triangular", "p": 0.0, "scale": 0.125}


def test_rows_of_a_bias_are_aligned() -> None:
    given = torch.arange(15.0).view(1, 1, 3, 5)
    assert torch.equal(aligned(given), given)
    assert aligned(given).stride() == (24, 24, 8, 1)


def test_sageattention_and_flash_attn_get_mapped_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of("attention/general/H2-L16-D64/causal")
    q, k, v = inputs_of(setup)
    seen: list[torch.Tensor] = []
    stand_in(monkeypatch, "sageattention", sageattn=lambda q, k, v, **named: seen.append(q) or v)
    stand_in(monkeypatch, "flash_attn", flash_attn_func=lambda q, k, v, **named: seen.append(q) or v)
    for backend in (SAGEATTENTION, FLASH_ATTN):
        assert backend.prepare(setup)(q, k, v) is v
    wanted = torch.einsum("blhd,hde->blhe", q, setup.rule_parameters["w"])
    for found in seen:
        torch.testing.assert_close(found, wanted)
