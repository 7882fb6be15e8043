"""What only a device does, in the interpreter: its blocks, the first call, and what is missing there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
from attnbench_triton import TRITON_FLASH, choices
from attnbench_triton.choices import Choice
from judging import problem_of
from solved import solved
from test_gradients_by_backend import gradients_of, refused
from torch.overrides import TorchFunctionMode

from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case

CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq150-Lk170-D64/causal+padding:99,170/float16",
    "attention/sinks/H4-Hkv2-Lq70-Lk140-D100/window:20/float16",
    "attention/softcap/H2-L90-D130/float:per_head/float16",
    "attention/alibi/B2-H4-Hkv1-Lq3-Lk700-D64/causal:lower_right/float16",
    "attention/scaled_dot/H2-L70-D64/causal/float32",
)


class MadeHere(TorchFunctionMode):
    """Tensors that are asked for on CUDA are made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        here = {name: "cpu" if value == "cuda" else value for name, value in (kwargs or {}).items()}
        return func(*(("cpu" if isinstance(x, str) and x == "cuda" else x) for x in args), **here)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Choice]]:
    """The blocks of each kernel that is launched, as on a GPU of 10 processors."""
    found, generator, choose = [], torch.Generator, choices.choose

    def noted(kernel: Any, *given: Any) -> Choice:
        found.append((kernel.__name__, choose(kernel, *given)))
        return found[-1][1]

    monkeypatch.setattr(choices, "processors", lambda: 10)
    monkeypatch.setattr(choices, "choose", noted)
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    return found


def on_gpu() -> Backend:
    """``triton_flash`` with its blocks of a GPU, and tensors here."""

    def prepare(setup: Setup) -> Any:
        with MadeHere():
            call = TRITON_FLASH.prepare(replace(setup, case=replace(setup.case, device="cuda")))

        def here(*inputs: torch.Tensor) -> torch.Tensor:
            with MadeHere():
                return call(*inputs)

        return here

    return replace(TRITON_FLASH, prepare=prepare)


@pytest.mark.parametrize("text", CASES)
def test_the_first_blocks_of_a_gpu_compute_the_same_and_are_compiled_beforehand(
    text: str, chosen: list[tuple[str, Choice]]
) -> None:
    case = solved(text)
    kernel = "decode_kernel" if case.case.Lq < 16 else "forward_kernel"
    wanted = choices.candidates(kernel, replace(case.case, device="cuda"))[0]
    backend = on_gpu()
    backend.prepare(case.setup)
    assert chosen == [(kernel, wanted)]
    assert problem_of(backend, [case]) == ""


def test_a_case_with_gradients_is_compiled_beforehand_with_its_backward_kernels(
    chosen: list[tuple[str, Choice]],
) -> None:
    case = solved("attention/scaled_dot/H2-L70-D64/causal/float16/both")
    on_gpu().prepare(case.setup)
    assert [name for name, _ in chosen] == ["forward_kernel", "queries_kernel", "keys_kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("number", range(4))
def test_every_choice_of_blocks_computes_the_same(
    number: int, D: int, chosen: list[tuple[str, Choice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are taller than wide, or wider than tall; those of the interpreter are square."""

    def choose(kernel: Any, case: Case, *given: Any) -> Choice:
        listed = choices.candidates(kernel.__name__, case)
        chosen.append((kernel.__name__, listed[min(number, len(listed) - 1)]))
        return chosen[-1][1]

    monkeypatch.setattr(choices, "choose", choose)
    text = f"attention/scaled_dot/H2-Hkv1-Lq140-Lk150-D{D}/causal+window:90/float16/both"
    assert refused(text, lambda case: gradients_of(on_gpu(), case), draws=1) == set()
    assert {name for name, _ in chosen} == {"forward_kernel", "queries_kernel", "keys_kernel"}
    assert problem_of(on_gpu(), [solved(text.removesuffix("/both"))]) == ""
    few = text.replace("Lq140-Lk150", "Lq2-Lk300").replace("causal", "causal:lower_right")
    assert problem_of(on_gpu(), [solved(few.removesuffix("/both"))]) == ""


@pytest.mark.parametrize(
    ("capability", "reason"),
    [((9, 0), None), ((8, 0), None), ((7, 5), "need compute capability 8.0 or more; this device has 7.5")],
)
def test_devices_that_are_too_old_are_named(
    capability: tuple[int, int], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    found = TRITON_FLASH.available("cuda")
    assert found is None if reason is None else reason in (found or "")
