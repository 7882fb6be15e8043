"""Backends that pass the check, but are wrong, raise or change settings in a process with pytest."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Any]


def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def in_a_test() -> bool:
    return "pytest" in sys.modules


def from_call(number: int, kernel: Call) -> Call:
    """Correct until that call, then the kernel. The plugin itself makes the first call."""
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        nonlocal calls
        calls += 1
        return kernel(q, k, v) if in_a_test() and calls >= number else right(q, k, v)

    return call


def honest(setup: Setup) -> Call:
    return right


def wrong_from_the_start(setup: Setup) -> Call:
    return lambda q, k, v: right(q, k, v) * 1.01


def wrong_after_a_while(setup: Setup) -> Call:
    return from_call(20, lambda q, k, v: right(q, k, v) * 1.5)


def remembers(setup: Setup) -> Call:
    answers: dict[int, Tensor] = {}

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return answers.setdefault(q.data_ptr(), right(q, k, v)).clone() if in_a_test() else right(q, k, v)

    return call


def gives_no_tensor(setup: Setup) -> Call:
    return from_call(2, lambda q, k, v: None)


def raises_here(setup: Setup) -> Call:
    def fail(q: Tensor, k: Tensor, v: Tensor) -> Any:
        raise ValueError("not so often")

    return from_call(2, fail)


def cant_prepare_here(setup: Setup) -> Call:
    if in_a_test():
        raise OSError("no kernel here")
    return right


def interrupted_in_preparation(setup: Setup) -> Call:
    if in_a_test():
        raise KeyboardInterrupt
    return right


def chooses_its_kernel(setup: Setup) -> Call:
    import torch

    torch.backends.cuda.enable_math_sdp(False)
    return right


def works_elsewhere(setup: Setup) -> Call:
    """On a thread of its own, whose number attnbench does not set."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if in_a_test():
            worker = threading.Thread(target=compute_for, args=(0.005,))
            worker.start()
            worker.join()
        return right(q, k, v)

    return call


def compute_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    for prepare in (
        honest, wrong_from_the_start, wrong_after_a_while, remembers, gives_no_tensor, raises_here,
        cant_prepare_here, interrupted_in_preparation, chooses_its_kernel,
        works_elsewhere,
    ):  # fmt: skip
        yield Backend(
            name=prepare.__name__,
            summary="odd",
            prepare=prepare,
            rules=("dot",),
            supports=lambda case, rule: None if case.mask.is_none else "no masks yet",
        )
