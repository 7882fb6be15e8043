"""Properties of single backends: their blocks, their limits, the kernel that runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from judging import operators
from solved import BACKENDS, RULES, WITHOUT_GROUPS, refusal, solved
from torch.nn.functional import scaled_dot_product_attention

from attnbench.backends.chunked import block_shape
from attnbench.backends.compiled import set_if_known
from attnbench.backends.sdpa import attention_with_lse, flash_takes_groups, pin
from attnbench.cases.ids import parse_case
from attnbench.kit.masks import chunks_of
from attnbench.types.backend import Setup


def test_blocks_that_are_alike_are_one_and_dropped_ones_are_gone() -> None:
    case = solved("attention/alibi/B1-H4-L1024-D4/causal/float32").setup
    case = replace(case, case=replace(case.case, H=64, Hkv=64))
    rows, cols = block_shape(case)
    chunks = chunks_of(case, torch.float32, (rows, cols))
    blocks = [(chunk.rows, span, added) for chunk in chunks for span, added in chunk.blocks]
    assert all(span.start < rows_.stop for rows_, span, _ in blocks)
    distinct = {id(added) for *_, added in blocks}
    # One for each distance between a block's first row and first column: O(L), not O(L²).
    assert len(distinct) <= 1024 // rows + 1024 // cols
    assert len(blocks) > 2 * len(distinct)


def test_the_log_sum_exp_is_right_where_features_lie_apart() -> None:
    one = solved("attention/scaled_dot/B2-H3-L9-D4/causal/float32")
    with torch.inference_mode():
        call = attention_with_lse(one.setup)
        for expected, found in zip(
            call(*one.inputs), call(*(x.mT.contiguous().mT for x in one.inputs)), strict=True
        ):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("attention/dot/B1-H1-L4096-D8", (512, 256)),
        ("attention/dot/B4-H32-L4096-D8", (16, 128)),
        ("attention/dot/B1-H8-Lq1-Lk100000-D8", (1, 32768)),
        ("attention/additive/B1-H8-L512-D64", (16, 32)),
    ],
)
def test_a_block_stays_in_cache(text: str, shape: tuple[int, int]) -> None:
    case = parse_case(text)
    assert block_shape(Setup(case, RULES[case.rule], None, {}, {})) == shape  # type: ignore[arg-type]


def test_weighted_sum_stops_where_memory_would() -> None:
    backend = BACKENDS["weighted_sum"]
    assert refusal(backend, parse_case("attention/dot/H8-L512-D64/float32")) is None
    words = refusal(backend, parse_case("attention/dot/B2-H8-L1024-D64/float32"))
    assert words == "stores B·H·Lq·Lk·Dv weighted values, 4.0 GiB here; at most 1 GiB is allowed"
    assert refusal(backend, parse_case("attention/dot/H8-L1024-D32/bfloat16")) is None


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("H4-Hkv2-L8-D8-E32", "the module has no shared heads: Hkv must be H; here Hkv = 2 and H = 4"),
        ("H4-L8-D8-Dv4-E32", "the module needs Dv = D; here D = 8 and Dv = 4"),
        ("H4-L8-D8-E24", "the module needs E = H·D; here E = 24 and H·D = 32"),
        ("H4-L8-D8-E32-noout", "the module always has an output projection"),
        ("H4-L8-D8-E32", None),
    ],
)
def test_the_module_says_what_it_cannot_express(sizes: str, words: str | None) -> None:
    assert refusal(BACKENDS["nn_multihead_attention"], parse_case(f"multihead/scaled_dot/{sizes}")) == words


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        ("L8-D8-E32-bias/causal", True),
        ("L8-D8-E32-bias/padding:4,8", True),
        ("L8-D8-E32-bias/padding:0,8", False),
        ("L8-D8-E32-bias/float", False),
        ("L8-D8-E32/none", False),
        ("Lq8-Lk9-D8-E32-bias/none", False),
    ],
)
def test_the_module_takes_its_fast_path_where_that_is_right(text: str, fast: bool) -> None:
    ran = operators(solved(f"multihead/scaled_dot/B2-H4-{text}/float32"), BACKENDS["nn_multihead_attention"])
    assert ("aten::_native_multi_head_attention" in ran) == fast


def test_the_modules_fast_path_still_gives_nan_for_an_empty_row() -> None:
    # The reason for keeping such cases off it: once this fails, they needn't be.
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, drop = torch.randn(1, 4, 8), torch.zeros(4, 4, dtype=torch.bool)
    drop[1] = True
    with torch.inference_mode():
        out = module(x, x, x, need_weights=False, attn_mask=drop)[0]
    assert out[0, 1].isnan().all()


def test_one_matrix_product_makes_q_k_and_v_in_self_attention() -> None:
    case = solved("multihead/dot/B2-H4-L8-D8-E32/none/float32")
    products = {
        name: operators(case, BACKENDS[name])["aten::linear"] for name in ("eager", "fused_multihead")
    }
    assert products == {"eager": 4, "fused_multihead": 2}


FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
MATH = "aten::_scaled_dot_product_attention_math"
PINNED = (
    "attention/scaled_dot/B2-H4-L16-D16/float64",
    "attention/scaled_dot/B2-H4-Hkv2-L16-D16/bfloat16/causal",
    "attention/scaled_dot/B2-H4-Lq16-Lk24-D16/float16/causal:lower_right",
    "attention/alibi/B2-H4-Hkv1-Lq1-Lk33-D13/padding",
    "attention/sinks/B2-H4-Hkv2-L16-D16/float",
    "multihead/general/B2-H4-L16-D16-E24/causal",
)


@pytest.mark.parametrize("text", PINNED)
@pytest.mark.parametrize(
    ("name", "kernel", "other"), [("sdpa_flash", FLASH, MATH), ("sdpa_math", MATH, FLASH)]
)
def test_the_pinned_kernel_runs(name: str, kernel: str, other: str, text: str) -> None:
    case = solved(text)
    if name in WITHOUT_GROUPS and case.case.group > 1:
        pytest.skip("this torch has no such kernel")
    ran = operators(case, BACKENDS[name])
    assert kernel in ran
    assert other not in ran


@pytest.mark.parametrize(("text", "op"), [("none", False), ("causal", True), ("causal:lower_right", True)])
def test_a_square_causal_mask_is_the_kernels_own(text: str, op: bool) -> None:
    # No mask tensor is made or read: flash then skips what lies above the diagonal.
    spy = Mock(side_effect=lambda q, k, v, **options: q)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
        solved(f"attention/scaled_dot/H2-L16-D16/{text}").run(BACKENDS["sdpa_flash"])
    options = spy.call_args.kwargs
    assert options["attn_mask"] is None
    assert options["is_causal"] is op


def test_pinned_flash_raises_where_it_cannot_run_and_never_falls_back() -> None:
    pin("flash")
    q, v = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="No available kernel"):
            scaled_dot_product_attention(q, q, v)


def test_a_mask_in_float32_serves_half_precision() -> None:
    # ALiBi's distances of some hundreds are not bfloat16 numbers; a mask in float32 keeps what the rule gave.
    case = solved("attention/alibi/H2-L300-D16/bfloat16")
    error = np.abs(case.run(BACKENDS["sdpa_flash"]).double().numpy() - case.expected).max()
    assert error < 0.04


@pytest.fixture
def torch_without_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's function raises as that of torch 2.6 does for grouped heads with only its flash kernel."""
    refuse = Mock(side_effect=RuntimeError("No available kernel. Aborting execution."))
    flash_takes_groups.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
        yield
    flash_takes_groups.cache_clear()


@pytest.mark.usefixtures("torch_without_groups")
def test_flash_refuses_grouped_heads_where_torchs_kernel_does() -> None:
    refused = refusal(BACKENDS["sdpa_flash"], parse_case("attention/scaled_dot/H4-Hkv2-L8-D8"))
    assert refused == f"the flash kernel for the CPU of torch {torch.__version__} takes no grouped heads"
    assert refusal(BACKENDS["sdpa_flash"], parse_case("attention/scaled_dot/H4-L8-D8")) is None


def test_flex_refuses_several_threads_where_torchs_kernel_does_not_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flex = BACKENDS["flex"]
    two = parse_case("attention/scaled_dot/H4-L8-D8/none/float32/cpu/forward/threads2")
    monkeypatch.setattr(torch, "__version__", "2.9.0")
    assert refusal(flex, two) is None
    monkeypatch.setattr(torch, "__version__", "2.8.0+cu128")
    said = "flex_attention of torch 2.8.0+cu128 compiles for one thread only on a CPU"
    assert refusal(flex, two) == said
    assert refusal(flex, parse_case("attention/scaled_dot/H4-L8-D8")) is None


def test_a_setting_that_this_torch_lacks_is_left_alone() -> None:
    settings = SimpleNamespace(known=True)
    set_if_known(settings, "known", False)
    set_if_known(settings, "of_a_newer_torch", False)
    assert vars(settings) == {"known": False}


def test_refusals_name_the_numbers() -> None:
    flash, math = BACKENDS["sdpa_flash"], BACKENDS["sdpa_math"]
    wide = parse_case("attention/scaled_dot/H2-L8-D16-Dv4")
    assert refusal(flash, wide) == "torch's flash kernel for the CPU needs Dv = D; here D = 16 and Dv = 4"
    assert refusal(math, wide) is None
    for backend in (flash, math):
        words = refusal(backend, parse_case("attention/softcap/H2-L8-D16"))
        assert "no soft cap" in words
