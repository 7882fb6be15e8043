"""The same on CUDA: right, or refused in words."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from solved import BACKENDS, RULES, refusal, solved
from torch.backends import cuda

from attnbench.backends import compiled
from attnbench.backends.sdpa import refuse_on_cuda
from attnbench.cases.ids import parse_case

CUDA = [name for name, backend in BACKENDS.items() if "cuda" in backend.devices]
TEXTS = (
    "attention/scaled_dot/B2-H4-L128-D64/none",
    "attention/scaled_dot/B2-H4-Hkv2-L128-D64/causal",
    "attention/alibi/B2-H4-Lq64-Lk128-D64/causal:lower_right",
    "attention/sinks/B2-H4-L128-D64/bool",
    "attention/additive/B2-H4-L48-D16/padding",
    "multihead/scaled_dot/B2-H4-L128-D64-E256-bias/padding",
)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dtype", "most"), [("bfloat16", 0.1), ("float32", 5e-3)])
@pytest.mark.parametrize("name", CUDA)
def test_right_or_refused(name: str, dtype: str, most: float) -> None:
    backend = BACKENDS[name]
    if backend.available("cuda") is not None:
        return
    for text in TEXTS[:2] if backend.compiles else TEXTS:
        case = solved(f"{text}/{dtype}").on("cuda")
        if refusal(backend, case.case) is None:
            output = case.run(backend).double().cpu().numpy()
            assert np.abs(output - case.expected).max() < most, text


@pytest.fixture
def cuda_in_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors asked for on CUDA are made on the CPU."""
    real_empty = torch.empty

    def empty(*shape: object, device: str, **options: object) -> torch.Tensor:
        assert device == "cuda"
        return real_empty(*shape, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", empty)


@pytest.mark.usefixtures("cuda_in_name_only")
def test_torch_is_asked_about_the_shapes_that_will_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[cuda.SDPAParams] = []

    def can_use(params: cuda.SDPAParams, debug: bool) -> bool:
        asked.append(params)
        return True

    monkeypatch.setattr(cuda, "can_use_flash_attention", can_use)
    for text in ("scaled_dot/B2-H4-Hkv2-Lq6-Lk8-D16-Dv4/causal", "sinks/H4-Lq6-Lk8-D16/none"):
        case = solved(f"attention/{text}/bfloat16")
        assert refuse_on_cuda(case.case, case.setup.rule, "flash") is None
    causal, sink = asked
    assert (tuple(causal.query.shape), tuple(causal.value.shape)) == ((2, 4, 6, 16), (2, 2, 8, 4))
    assert (causal.is_causal, causal.enable_gqa, causal.attn_mask) == (True, True, None)
    # A sink is one more key, and a mask with its column.
    assert tuple(sink.key.shape) == (1, 4, 9, 16)
    assert tuple(sink.attn_mask.shape) == (1, 4, 6, 9)


@pytest.mark.usefixtures("cuda_in_name_only")
def test_reasons_are_torchs_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def can_use(params: cuda.SDPAParams, debug: bool) -> bool:
        assert debug
        warnings.warn("Expected half. (Triggered internally at sdp_utils.cpp:99.)", stacklevel=1)
        return False

    monkeypatch.setattr(cuda, "can_use_cudnn_attention", can_use)
    case = solved("attention/scaled_dot/H2-L8-D16/none/float32")
    words = refuse_on_cuda(case.case, case.setup.rule, "cudnn")
    assert words == "torch can't use this kernel here: Expected half."


KINDS = ("flash", "efficient", "cudnn")
ON_CUDA = "attention/scaled_dot/H2-L8-D16/none/float32/cuda"


@pytest.mark.usefixtures("cuda_in_name_only")
@pytest.mark.parametrize("kind", KINDS)
def test_each_pinned_kernel_asks_torch_about_itself(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    supports = BACKENDS[f"sdpa_{kind}"].supports
    for other in KINDS:
        asked = f"can_use_{other}_attention"
        monkeypatch.setattr(cuda, asked, lambda params, debug, other=other: other == kind)
    case, capped = parse_case(ON_CUDA), parse_case(ON_CUDA.replace("scaled_dot", "softcap"))
    assert supports(case, RULES["scaled_dot"]) is None
    assert supports(capped, RULES["softcap"]) is not None
    monkeypatch.setattr(cuda, f"can_use_{kind}_attention", lambda params, debug: False)
    assert "torch can't use this kernel here" in supports(case, RULES["scaled_dot"])


@pytest.mark.usefixtures("cuda_in_name_only")
def test_a_mask_for_a_device_has_the_dtype_of_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU's kernels take float32 masks with half-precision inputs; those of a device don't."""
    seen: list[cuda.SDPAParams] = []
    monkeypatch.setattr(cuda, "can_use_flash_attention", lambda params, debug: not seen.append(params))
    case = parse_case("attention/alibi/H2-L8-D16/none/bfloat16/cuda")
    assert BACKENDS["sdpa_flash"].supports(case, RULES[case.rule]) is None
    assert seen[0].attn_mask.dtype == torch.bfloat16


def test_compilers_for_a_device_need_triton_and_heads_of_16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    assert "needs triton" in (BACKENDS["compiled"].available("cuda") or "")
    assert "needs triton" in (BACKENDS["flex"].available("cuda") or "")
    monkeypatch.setattr(compiled, "find_spec", lambda name: object())
    assert BACKENDS["compiled"].available("cuda") is None
    narrow = parse_case("attention/scaled_dot/H2-L8-D16-Dv8/none/float32/cuda")
    reason = BACKENDS["flex"].supports(narrow, RULES[narrow.rule])
    assert reason == "flex_attention needs heads of 16 features on CUDA; here 8"
    wide = parse_case(ON_CUDA)
    assert BACKENDS["flex"].supports(wide, RULES[wide.rule]) is None
