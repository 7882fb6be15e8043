"""The steps of a recurrence in torch, one after the other: the plain reference of ``recurrent``.

And what makes a function of packed sequences of one that takes equal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isqrt
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.problems import problem_setups, ranges
from attnbench.types.backend import Setup
from attnbench.types.operation import operation_of
from attnbench.types.storage import of_all

if TYPE_CHECKING:
    from torch import Tensor


_MOST_KEPT = 2**22
"""A graph keeps the states of all steps if they have so many numbers or fewer, 32 MiB in float64."""


def named_inputs(setup: Setup) -> Callable[..., dict[str, Tensor]]:
    """Return a function that takes the inputs of a call and gives them by name, in the dtype of the state.

    q and k are repeated to the heads of v. decay: (B, H, L, 1) or (B, H, L, D); beta: (B, H, L, 1). Those
    that the rule has not are missing. rate: (H, D, Dv); v is multiplied by dt where the rule has it.
    """
    # The dtype of a state too: float32 at least.
    case, wide = setup.case, softmax_dtype(case_dtype(setup.case))
    names = [spec.name for spec in operation_of(case).inputs(case, setup.rule)]

    def named(*inputs: Tensor) -> dict[str, Tensor]:
        given = {name: x.to(wide) for name, x in zip(names, inputs, strict=True)}
        for name in ("q", "k"):
            given[name] = given[name].repeat_interleave(case.group, 1)
        if "decay" in given and given["decay"].ndim == 1:
            given["decay"] = given["decay"][:, None].expand(case.B, case.H, case.Lq)
        for name in ("decay", "beta"):
            if name in given and given[name].ndim == 3:
                given[name] = given[name][..., None]
        if "dt" in given:
            given["v"] = given["dt"] * given["v"]
        return given

    return named


def prepare(setup: Setup) -> Callable[..., Any]:
    """Return a function of the inputs that takes one step after the other; it gives the output and the state.

    The state is in float32 at least. With gradients a graph keeps the states of all steps if they are few
    numbers, else those at the ends of pieces of about √L steps, and computes those of a piece again in the
    backward pass.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    case, named = setup.case, named_inputs(setup)
    scale, dtype = case.D**-0.5, case_dtype(case)
    plainly = case.pass_ == "forward" or case.B * case.H * case.Lq * case.D * case.Dv <= _MOST_KEPT
    size = case.Lq if plainly else isqrt(case.Lq)
    take = _steps if plainly else partial(checkpoint, _steps, use_reentrant=False, preserve_rng_state=False)

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        given = named(*inputs)
        state, rate = given.pop("past_state"), given.pop("rate", None)
        if case.Lq == 0:
            # An output may not be the memory of an input.
            return given["v"].to(dtype, copy=True), state.clone()
        read = []
        for start in range(0, case.Lq, size):
            piece = {name: x[:, :, start : start + size] for name, x in given.items()}
            out, state = take(piece, state, rate)
            read.append(out)
        return (scale * torch.cat(read, 2)).to(dtype), state

    return call


def _steps(given: dict[str, Tensor], state: Tensor, rate: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return what is read in some steps, without the scale, and the state after them."""
    import torch

    q, k, v = (given[name] for name in "qkv")
    kept = given["decay"].exp() if "decay" in given else None
    read = []
    for i in range(q.shape[2]):
        found = given["a"][:, :, i, None] @ state if "a" in given else None
        if rate is not None:
            state = (given["dt"][:, :, i, None] * rate).exp() * state
        if kept is not None:
            state = kept[:, :, i, :, None] * state
        if found is not None:
            state = state + given["b"][:, :, i, :, None] * found
        value = v[:, :, i]
        if "beta" in given:
            value = given["beta"][:, :, i] * (value - (k[:, :, i, None] @ state)[:, :, 0])
        state = state + k[:, :, i, :, None] * value[:, :, None]
        read.append((q[:, :, i, None] @ state)[:, :, 0])
    return torch.stack(read, 2), state


class PackedSequences:
    """A prepared function of packed sequences, which takes one after the other.

    make: prepares the function of equal sequences. q, k, v, decay and beta have the steps of all sequences in
    their first axis, and the state has a matrix for each head of each sequence, or of each slot of a pool.
    The decay of ``lightning`` and the rates of ``selective`` are those of all sequences.
    The state of a sequence without steps is the one before the first.
    """

    def __init__(self, setup: Setup, make: Callable[[Setup], Callable[..., Any]]) -> None:
        # The last input is the state; tensors that say where sequences lie follow.
        inputs = operation_of(setup.case).inputs(setup.case, setup.rule)
        self.common = [of_all(spec) for spec in inputs[:-1]]
        self.calls = [make(one) if one.case.Lq else None for one in problem_setups(setup)]
        self.places: list[slice] = []
        self.slots: list[int] = []

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Read where the steps of each sequence lie, and its state."""
        self.places = ranges(ahead["cu_seqlens"])
        pooled = ahead.get("state_indices")
        self.slots = [*range(len(self.calls))] if pooled is None else pooled.tolist()

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of all steps, (T, H, Dv), and all states, (N, H, D, Dv) or a pool of them."""
        *steps, state = inputs[: len(self.common) + 1]
        out, after = steps[2].new_empty(steps[2].shape), state.clone()
        for slot, rows, call in zip(self.slots, self.places, self.calls, strict=True):
            if call is not None:
                pairs = zip(steps, self.common, strict=True)
                own = (x if common else x[rows].transpose(0, 1)[None] for x, common in pairs)
                read, left = call(*own, state[slot][None])
                out[rows] = read[0].transpose(0, 1)
                after[slot] = left[0]
        return out, after
