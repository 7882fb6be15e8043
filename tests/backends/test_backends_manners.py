"""Properties that a worker assumes of every backend, besides right numbers."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from solved import BACKENDS, QUICK, mapped, refusal, solved, supported

import attnbench.masks
from attnbench.kit import masks as kit_masks
from attnbench.timing.memory import peak_extra_bytes
from attnbench.worker.outputs import shares_memory

FORMS = (
    "attention/{}/B2-H4-L12-D8/none/float32",
    "attention/{}/B2-H1-L12-D8/none/float32",
    "attention/{}/B2-H4-Lq1-Lk9-D8/bool/float32",
    "multihead/{}/B2-H4-L12-D8-E32/causal/float32",
    "multihead/{}/B1-H1-L1-D8-E8-noout/none/float32",
)


@pytest.mark.parametrize("name", QUICK)
def test_inputs_stay_and_outputs_are_fresh_dense_and_repeatable(name: str) -> None:
    for case in supported(name, FORMS):
        with torch.inference_mode():
            call = BACKENDS[name].prepare(case.setup)
            inputs = case.fresh_inputs()
            first, second = call(*inputs), call(*inputs)
        for given, before in zip(inputs, case.inputs, strict=True):
            assert torch.equal(given, before), f"{name} changed its input on {case.case}"
            assert not shares_memory(first, given), f"{name} returned part of its input on {case.case}"
        assert not shares_memory(first, second), f"{name} returned its last output on {case.case}"
        assert torch.equal(first, second)
        assert type(first) is torch.Tensor
        assert first.numel() == first.untyped_storage().nbytes() // first.element_size()


@pytest.mark.parametrize("name", QUICK)
def test_slices_of_larger_buffers_give_the_same_without_inference_mode(name: str) -> None:
    for case in supported(name, FORMS):
        inputs = mapped(inside_nan, case.inputs)
        torch.testing.assert_close(BACKENDS[name].prepare(case.setup)(*inputs), case.run(BACKENDS[name]))


def inside_nan(x: torch.Tensor) -> torch.Tensor:
    """The same numbers as a strided view with NaN all around."""
    buffer = torch.full([size + 2 for size in x.shape], torch.nan, dtype=x.dtype)
    view = buffer[tuple(slice(1, size + 1) for size in x.shape)]
    return view.copy_(x)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("rule", ["scaled_dot", "alibi"])
def test_masks_and_bias_are_made_in_preparation(
    name: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = BACKENDS[name]
    operation, layer = ("attention", "") if "attention" in backend.operations else ("multihead", "-E32")
    case = solved(f"{operation}/{rule}/B2-H4-L12-D8{layer}/float+causal/float32")
    if refusal(backend, case.case) is not None:
        return
    timed = False

    def late(*arguments: Any) -> Any:
        raise AssertionError("made in the timed call")

    def bias(rows: slice, cols: slice) -> torch.Tensor:
        return late() if timed else case.setup.scoring.bias(rows, cols)

    scoring = case.setup.scoring if rule == "scaled_dot" else replace(case.setup.scoring, bias=bias)
    call = backend.prepare(replace(case.setup, scoring=scoring))
    timed = True
    for module in (attnbench.masks, kit_masks):
        monkeypatch.setattr(module, "keep_rows", late)
        monkeypatch.setattr(module, "added_rows", late)
    call(*case.inputs)


@pytest.mark.parametrize("name", [name for name in QUICK if BACKENDS[name].forkable])
def test_a_forkable_backend_leaves_no_thread_behind(name: str) -> None:
    before = threading.active_count(), len(list(Path("/proc/self/task").iterdir()))
    for case in supported(name, FORMS):
        case.run(BACKENDS[name])
    assert (threading.active_count(), len(list(Path("/proc/self/task").iterdir()))) == before


@pytest.mark.parametrize("name", [name for name in QUICK if "attention" in BACKENDS[name].operations])
def test_quadratic_copies_are_what_is_declared(name: str) -> None:
    # Arrays large enough that the allocator takes each from the system and gives it back.
    B, H, L, D = 1, 4, 1536, 2
    backend = BACKENDS[name]
    rule = (backend.rules or ("scaled_dot",))[0]
    case = solved(f"attention/{rule}/B{B}-H{H}-L{L}-D{D}/none/float32")
    copy = B * H * L * L * 4
    with torch.inference_mode():
        call = backend.prepare(case.setup)
        peak = peak_extra_bytes(lambda: call(*case.inputs))
    held = backend.quadratic_copies + (D if name == "weighted_sum" else 0)
    # Freed memory that the allocator kept apart counts too.
    assert peak < (held + 0.75) * copy
    if name in ("eager", "sdpa_math", "bmm"):
        assert peak > (held - 0.5) * copy


def test_backends_for_the_processor_can_run_here() -> None:
    assert [name for name, one in BACKENDS.items() if "cpu" in one.devices and one.available("cpu")] == []
