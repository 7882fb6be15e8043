"""Mistakes of a backward pass: the outputs are right, the gradients are wrong.

Most consist of two terms: the right value without a gradient, and a difference of 0 that has the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mistakes.parts import (
    RIGHT,
    Form,
    Mistake,
    heads_of,
    normalised,
    right_scores,
    right_spread,
    right_weights,
)
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Change = Callable[[Tensor], Tensor]

_BACKWARD = "the softmax's backward is dS = P * (dP - rowsum(dP * P))"
_SUMMED = "sum the gradients over the heads of a group; key/value head h // (H // Hkv) serves query head h"


def with_gradient_times(factor: float, x: Tensor) -> Tensor:
    """``x`` with so many times its gradient; 0 for a gradient of zeros."""
    return x.detach() + (x - x.detach()) * factor


def with_gradient_of(wrong: Tensor, right: Tensor) -> Tensor:
    """The values of ``right`` with the gradient of ``wrong``."""
    return right.detach() + (wrong - wrong.detach())


def hooked(x: Tensor, change: Change) -> Tensor:
    """The same values, whose gradient is changed on its way back."""
    same = x.view_as(x)
    if same.requires_grad:
        same.register_hook(change)  # type: ignore[no-untyped-call]
    return same


def _ones_upstream(setup: Setup) -> Call:
    import torch

    attend = heads_of(RIGHT, setup)
    return for_operation(lambda q, k, v: hooked(attend(q, k, v), torch.ones_like), setup)


def _modulo(setup: Setup, x: Tensor) -> Tensor:
    return with_gradient_of(x.repeat(1, setup.case.group, 1, 1), right_spread(setup, x))


def _first_of_group(setup: Setup, x: Tensor) -> Tensor:
    import torch

    spread = right_spread(setup, x)
    first = torch.arange(setup.case.H, device=x.device)[:, None, None] % setup.case.group == 0
    return torch.where(first, spread, with_gradient_times(0, spread))


def unmasked(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Weights without the mask."""
    bare = added.masked_fill(added.isneginf(), 0)
    return normalised(setup, scores.to(added.dtype) + bare).to(scores.dtype)


def _scores_unmasked(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return with_gradient_of(unmasked(setup, scores, added), right_weights(setup, scores, added))


def _no_row_sum(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    weights = right_weights(setup, scores, added)
    return with_gradient_of(weights.detach() * scores, weights)


def _queries_unscaled(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.dot is not None
    return right_scores(setup, with_gradient_times(1 / setup.scoring.dot.scale, q), k)


GRADIENTS: tuple[Mistake, ...] = (
    Mistake(
        "dq_without_scale", "the gradient of q is not divided by √D",
        "the scale belongs to the gradients of q and k too", Form(scores=_queries_unscaled),
    ),
    Mistake(
        "dk_of_other_groups", "gradients of k and v are summed over heads h % Hkv", _SUMMED,
        Form(spread=_modulo),
    ),
    Mistake(
        "dk_of_the_first_in_group", "gradients of k and v come from one head of the group", _SUMMED,
        Form(spread=_first_of_group),
    ),
    Mistake("softmax_without_row_sum", "dS = P·dP", _BACKWARD, Form(weights=_no_row_sum)),
    Mistake(
        "softmax_unmasked_backward", "the backward pass ignores the mask",
        "the backward pass drops the same pairs", Form(weights=_scores_unmasked),
    ),
    Mistake(
        "upstream_taken_for_ones", "the gradient of the output is taken for ones",
        "multiply by the gradient of the output", _ones_upstream,
    ),
)  # fmt: skip
