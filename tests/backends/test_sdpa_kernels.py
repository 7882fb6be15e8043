"""The kernel that a backend is named after is the one that ran."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from judging import operators
from solved import BACKENDS, refusal, solved
from torch.nn.functional import scaled_dot_product_attention

from attnbench.backends.sdpa import pin
from attnbench.cases.ids import parse_case

FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
MATH = "aten::_scaled_dot_product_attention_math"
CASES = (
    "attention/scaled_dot/B2-H4-L16-D16",
    "attention/scaled_dot/B2-H4-L16-D16/float64",
    "attention/scaled_dot/B2-H4-Hkv2-L16-D16/bfloat16/causal",
    "attention/scaled_dot/B2-H4-Lq16-Lk24-D16/float16/causal:lower_right",
    "attention/dot/B2-H4-Hkv1-Lq1-Lk33-D13/padding",
    "attention/alibi/B2-H4-L16-D16/bfloat16",
    "attention/cosine/B2-H4-L16-D16/bool",
    "attention/sinks/B2-H4-Hkv2-L16-D16/float",
    "multihead/general/B2-H4-L16-D16-E24/causal",
)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize(
    ("name", "kernel", "other"), [("sdpa_flash", FLASH, MATH), ("sdpa_math", MATH, FLASH)]
)
def test_the_pinned_kernel_runs(name: str, kernel: str, other: str, text: str) -> None:
    ran = operators(solved(text), BACKENDS[name])
    assert kernel in ran
    assert other not in ran


@pytest.mark.parametrize(("text", "op"), [("none", False), ("causal", True), ("causal:lower_right", True)])
def test_a_square_causal_mask_is_the_kernels_own(text: str, op: bool) -> None:
    # No mask tensor is made or read: flash then skips what lies above the diagonal.
    case = solved(f"attention/scaled_dot/H2-L16-D16/{text}")
    seen: list[dict[str, object]] = []

    def spy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: object) -> torch.Tensor:
        seen.append(options)
        return q

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
        case.run(BACKENDS["sdpa_flash"])
    assert seen[0]["attn_mask"] is None
    assert seen[0]["is_causal"] is op


def test_pinned_flash_raises_where_it_cannot_run_and_never_falls_back() -> None:
    pin("flash")
    q, v = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="No available kernel"):
            scaled_dot_product_attention(q, q, v)


@pytest.mark.parametrize("kernel", ["efficient", "cudnn"])
def test_kernels_of_cuda_are_not_there_on_a_cpu(kernel: str) -> None:
    assert BACKENDS[f"sdpa_{kernel}"].devices == ("cuda",)
    pin(kernel)  # type: ignore[arg-type]
    q = torch.randn(1, 2, 8, 16)
    with pytest.raises(RuntimeError, match="No viable backend"):
        scaled_dot_product_attention(q, q, q)


def test_a_mask_in_float32_serves_half_precision() -> None:
    # ALiBi's distances of some hundreds are not bfloat16 numbers; a mask in float32 keeps what the rule gave.
    case = solved("attention/alibi/H2-L300-D16/bfloat16")
    error = np.abs(case.run(BACKENDS["sdpa_flash"]).double().numpy() - case.expected).max()
    assert error < 0.04


def test_refusals_name_the_numbers() -> None:
    flash, math = BACKENDS["sdpa_flash"], BACKENDS["sdpa_math"]
    wide = parse_case("attention/scaled_dot/H2-L8-D16-Dv4")
    assert refusal(flash, wide) == "torch's flash kernel for the CPU needs Dv = D; here D = 16 and Dv = 4"
    assert refusal(math, wide) is None
    for backend in (flash, math):
        words = refusal(backend, parse_case("attention/softcap/H2-L8-D16"))
        assert words is not None
        assert "no soft cap" in words
