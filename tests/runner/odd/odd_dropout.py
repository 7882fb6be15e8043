"""Backends that drop weights, some of them wrongly: test data for the check of dropout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odd_backends import taking_slots

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]
    Drop = Callable[[Tensor, float], Tensor]


def from_torch(weights: Tensor, p: float) -> Tensor:
    import torch

    return torch.nn.functional.dropout(weights, p)


def dropping(make: Callable[[], Drop]) -> Callable[[Setup], Call]:
    """Attention whose weights go through what is made in preparation."""

    def prepare(setup: Setup) -> Call:
        drop, p, scale = make(), setup.case.dropout, setup.case.D**-0.5

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return drop((q @ k.mT * scale).softmax(-1), p) @ v

        return call

    return prepare


def one_mask() -> Drop:
    """Right in its first call, and the same ever after."""
    kept: list[Tensor] = []

    def drop(weights: Tensor, p: float) -> Tensor:
        import torch

        if not kept:
            kept.append(from_torch(torch.ones_like(weights), p))
        return weights * kept[0]

    return drop


def none_when_timed() -> Drop:
    return lambda weights, p: weights if taking_slots() else from_torch(weights, p)


def first_weights_when_timed() -> Drop:
    """Other numbers in every call, of weights that were right once."""
    kept: list[Tensor] = []

    def drop(weights: Tensor, p: float) -> Tensor:
        if not taking_slots():
            return from_torch(weights, p)
        if not kept:
            kept.append(weights.clone())
        return from_torch(kept[0], p)

    return drop


def generator_of_its_own() -> Drop:
    import torch

    generator = torch.Generator()
    generator.seed()
    os.register_at_fork(after_in_child=generator.seed)

    def drop(weights: Tensor, p: float) -> Tensor:
        return weights * (torch.rand(weights.shape, generator=generator) >= p) / (1 - p)

    return drop


def always(drop: Drop) -> Callable[[], Drop]:
    return lambda: drop


MADE: dict[str, Callable[[], Drop]] = {
    "right": always(from_torch),
    "generator_of_its_own": generator_of_its_own,
    "p_a_fifth_larger": always(lambda w, p: from_torch(w, 1.2 * p)),
    "one_mask": one_mask,
    "none_dropped": always(lambda w, p: w),
    "none_when_timed": none_when_timed,
    "first_weights_when_timed": first_weights_when_timed,
}


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    for name, make in MADE.items():
        yield Backend(
            name=f"drop_{name}", summary=f"{name}, on purpose", prepare=dropping(make), rules=("scaled_dot",),
            dropout=True,
        )  # fmt: skip
