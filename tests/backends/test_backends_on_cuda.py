"""The same on CUDA: right, or refused in words."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from solved import BACKENDS, refusal, solved
from torch.backends import cuda

from attnbench.backends.sdpa import refuse_on_cuda

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
    assert sink.attn_mask is not None
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
