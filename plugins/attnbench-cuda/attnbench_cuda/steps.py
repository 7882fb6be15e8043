"""Recurrences: the inputs of a case as libraries take them, steps before heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.types.operation import operation_of

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Setup


def in_steps(setup: Setup, call: Callable[..., Any], *, packs: bool = False) -> Callable[..., Any]:
    """Return a function of the inputs of a case from one of steps before heads.

    call: takes what each step has, by name, each (B, L, heads, ...), or (1, T, heads, ...) of a batch; the
    states before the first step, (N, H, D, Dv) or a pool of them; where sequences begin, or None where they
    are equal; and the slots of their states in a pool, or None. It returns the output, (B, L, H, Dv) or (1,
    T, H, Dv), and the states. packs: hand on equal sequences one after the other too.
    """
    import torch

    case = setup.case
    names = [spec.name for spec in operation_of(case).inputs(case, setup.rule)]
    starts = None
    if packs and not case.batch:
        starts = torch.arange(case.B + 1, dtype=torch.int32, device=case.device) * case.Lq

    def packed(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = inputs[: len(names)]
        own, *slots = inputs[len(names) :]
        named = {name: x[None] for name, x in zip(names, steps, strict=False)}
        out, after = call(named, state, own, slots[0] if slots else None)
        return out[0], after

    def dense(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = inputs
        named = {name: x.transpose(1, 2) for name, x in zip(names, steps, strict=False)}
        if packs:
            named = {name: x.flatten(0, 1)[None] for name, x in named.items()}
        out, after = call(named, state, starts, None)
        if packs:
            out = out[0].unflatten(0, (case.B, case.Lq))
        return out.transpose(1, 2), after

    return packed if case.batch else dense
