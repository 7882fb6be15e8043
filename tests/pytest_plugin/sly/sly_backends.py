"""Backends that are right when they are checked and wrong where tests call them; and some that are odd."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Any]

SOON = 40


def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def in_a_test() -> bool:
    return "pytest" in sys.modules


def honest(setup: Setup) -> Call:
    return right


def wrong_after_a_while(setup: Setup) -> Call:
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return right(q, k, v) * (1.5 if in_a_test() and calls > SOON else 1)

    return call


def remembers(setup: Setup) -> Call:
    answers: dict[int, Tensor] = {}

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not in_a_test():
            return right(q, k, v)
        if q.data_ptr() not in answers:
            answers[q.data_ptr()] = right(q, k, v)
        return answers[q.data_ptr()].clone()

    return call


def gives_no_tensor(setup: Setup) -> Call:
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        nonlocal calls
        calls += 1
        return None if in_a_test() and calls > 1 else right(q, k, v)

    return call


def raises_here(setup: Setup) -> Call:
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if in_a_test() and calls > 1:
            raise ValueError("not among so many")
        return right(q, k, v)

    return call


def cant_prepare_here(setup: Setup) -> Call:
    if in_a_test():
        raise OSError("no kernel here")
    return right


def interrupted_in_preparation(setup: Setup) -> Call:
    """As if somebody pressed Ctrl-C meanwhile."""
    if in_a_test():
        raise KeyboardInterrupt
    return right


def interrupted_at_the_end(setup: Setup) -> Call:
    """In the call after that of the test."""
    calls = 0

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if in_a_test() and calls == 3:
            raise KeyboardInterrupt
        return right(q, k, v)

    return call


def tampers(setup: Setup) -> Call:
    """What it changes beyond its own calls is put back."""
    import torch

    if in_a_test():
        torch.backends.cuda.enable_math_sdp(False)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(torch.get_num_threads() + 1)
    return right


def wrong_from_the_start(setup: Setup) -> Call:
    return lambda q, k, v: right(q, k, v) * 1.01


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    for prepare in (
        honest, wrong_after_a_while, remembers, gives_no_tensor, raises_here, cant_prepare_here, tampers,
        wrong_from_the_start, interrupted_in_preparation, interrupted_at_the_end,
    ):  # fmt: skip
        yield Backend(
            name=prepare.__name__,
            summary="odd",
            prepare=prepare,
            rules=("dot",),
            supports=lambda case, rule: None if case.mask.is_none else "no masks yet",
        )
