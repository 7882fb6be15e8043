"""Ways to give right outputs wrong gradients.

Most are made of two terms: what is right, without a gradient, and a difference of 0 that has the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.selftest.zoo.form import (
    RIGHT,
    Form,
    built,
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


def factor(x: Tensor, by: float) -> Tensor:
    """``x`` with so many times its gradient; 0 for a gradient of zeros."""
    return x.detach() + (x - x.detach()) * by


def in_place_of(right: Tensor, wrong: Tensor) -> Tensor:
    """The values of ``right`` with the gradient of ``wrong``."""
    return right.detach() + (wrong - wrong.detach())


def inputs(q: Change, k: Change, v: Change) -> Callable[[Setup], Call]:
    """The right heads behind something done to their inputs."""

    def prepare(setup: Setup) -> Call:
        attend = heads_of(RIGHT, setup)
        return for_operation(lambda a, b, c: attend(q(a), k(b), v(c)), setup)

    return prepare


def same(x: Tensor) -> Tensor:
    """Nothing done."""
    return x


def of_form(parts: Form) -> Callable[[Setup], Call]:
    """A form for either operation."""
    return lambda setup: built(parts, setup)


def none(x: Tensor) -> Tensor:
    """A gradient of zeros."""
    return factor(x, 0)


def one_percent(x: Tensor) -> Tensor:
    """A gradient 1 % too large."""
    return factor(x, 1.01)


def no_last_row(x: Tensor) -> Tensor:
    """Zeros for the last row (B, H, row, D)."""
    import torch

    return torch.cat((x[:, :, :-1], none(x[:, :, -1:])), 2)


def hook(x: Tensor, change: Change) -> Tensor:
    """The same values, whose gradient is changed on its way back."""
    same = x.view_as(x)
    if same.requires_grad:
        same.register_hook(change)  # type: ignore[no-untyped-call]
    return same


def rounded(x: Tensor) -> Tensor:
    """A gradient rounded to bfloat16."""
    import torch

    return hook(x, lambda g: g.to(torch.bfloat16).to(g.dtype))


def hooked(setup: Setup, make: Callable[[], Change]) -> Call:
    """The right heads; the gradient of their keys goes through a function that remembers."""
    attend, change = heads_of(RIGHT, setup), make()
    return for_operation(lambda q, k, v: attend(q, hook(k, change), v), setup)


def adding() -> Change:
    """Gives the sum of all gradients so far."""
    sums: list[Tensor] = []

    def add(g: Tensor) -> Tensor:
        sums[:] = [sums[0] + g if sums else g]
        return sums[0].clone()

    return add


def keeping() -> Change:
    """Gives the first gradient ever after."""
    kept: list[Tensor] = []

    def keep(g: Tensor) -> Tensor:
        if not kept:
            kept.append(g.clone())
        return kept[0].clone()

    return keep


def ones_upstream(setup: Setup) -> Call:
    """As if the gradient of the output were ones everywhere: right for a sum."""
    import torch

    attend = heads_of(RIGHT, setup)
    return for_operation(lambda q, k, v: hook(attend(q, k, v), torch.ones_like), setup)


def modulo(setup: Setup, x: Tensor) -> Tensor:
    """Gradients summed over heads h % Hkv."""
    return in_place_of(right_spread(setup, x), x.repeat(1, setup.case.group, 1, 1))


def first_of_group(setup: Setup, x: Tensor) -> Tensor:
    """Only the first head of a group has a gradient."""
    import torch

    spread = right_spread(setup, x)
    first = torch.arange(setup.case.H, device=x.device)[:, None, None] % setup.case.group == 0
    return torch.where(first, spread, none(spread))


def unmasked(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Weights without the mask."""
    bare = added.masked_fill(added.isneginf(), 0)
    return normalised(setup, scores.to(added.dtype) + bare).to(scores.dtype)


def scores_unmasked(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """The backward pass of weights without the mask."""
    return in_place_of(right_weights(setup, scores, added), unmasked(setup, scores, added))


def straight_through(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """The gradient of weights as that of scores."""
    return in_place_of(right_weights(setup, scores, added), scores)


def no_row_sum(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """dS = P · dP, without the sum over the row that is taken off."""
    weights = right_weights(setup, scores, added)
    return in_place_of(weights, weights.detach() * scores)


def values_unmasked(setup: Setup) -> Call:
    """dv from weights before the mask."""
    blind = heads_of(Form(weights=unmasked), setup)
    seeing = heads_of(RIGHT, setup)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wrong = blind(q.detach(), k.detach(), v)
        return seeing(q, k, v.detach()) + (wrong - wrong.detach())

    return for_operation(attend, setup)


def queries_unscaled(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """The gradient of queries without the scale."""
    assert setup.scoring.dot is not None
    return right_scores(setup, factor(q, 1 / setup.scoring.dot.scale), k)


def parameters_silent(setup: Setup) -> Call:
    """The rule's parameters get gradients of zeros."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        silent = {name: none(p) for name, p in setup.rule_parameters.items()}
        bound = replace(setup, scoring=setup.rule.bind(setup.case, silent), rule_parameters=silent)
        return built(RIGHT, bound)(q, k, v)

    return call


def projection_silent(name: str) -> Callable[[Setup], Call]:
    """One projection gets a gradient of zeros."""

    def prepare(setup: Setup) -> Call:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            other = {**setup.projections, name: none(setup.projections[name])}
            return built(RIGHT, replace(setup, projections=other))(q, k, v)

        return call

    return prepare
