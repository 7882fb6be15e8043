"""Ways to give right outputs wrong gradients.

Most are made of two terms: what is right, without a gradient, and a difference of 0 that has the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mutants.mutant import (
    RIGHT,
    Applies,
    Form,
    Mutant,
    built,
    heads_of,
    normalised,
    of_form,
    right_scores,
    right_spread,
    right_weights,
)
from attnbench.testing.mutants.where import (
    both,
    drops,
    has_layer,
    keeps_a_key,
    projects_out,
    scaled,
    shared_in_groups,
    with_backward,
)
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, PASSES, Case, Dtype
from attnbench.types.rule import Rule

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


def _no_sink(case: Case, rule: Rule) -> bool:
    """Where there is one, no gradient at all reaches it, which is an error and needs no judge."""
    return rule.sink is None


def _shared(case: Case, rule: Rule) -> bool:
    return case.Hkv < case.H


def _has_parameters(case: Case, rule: Rule) -> bool:
    return bool(rule.parameters(case))


def _last_key_kept(case: Case, rule: Rule) -> bool:
    return case.mask.is_none and case.Lk > 1


WIDE: tuple[Dtype, ...] = ("float32", "float64")

KINDS: dict[str, tuple[str, Callable[[Setup], Call], Applies, tuple[Dtype, ...]]] = {
    "dq_zero": ("no gradient of q", inputs(none, same, same), with_backward, DTYPES),
    "dk_zero": ("no gradient of k", inputs(same, none, same), with_backward, DTYPES),
    "dv_zero": ("no gradient of v", inputs(same, same, none), keeps_a_key, DTYPES),
    "dk_1_percent": ("gradient of k 1 % too large", inputs(same, one_percent, same), with_backward, WIDE),
    "dq_negated": (
        "gradient of q with the other sign",
        inputs(lambda q: factor(q, -1), same, same),
        with_backward,
        DTYPES,
    ),
    "dq_without_scale": (
        "gradient of q not divided by √D",
        of_form(Form(scores=queries_unscaled)),
        scaled,
        DTYPES,
    ),
    "dv_without_last_key": (
        "no gradient of the last value",
        inputs(same, same, no_last_row),
        _last_key_kept,
        DTYPES,
    ),
    "dv_in_bfloat16": (
        "gradient of v rounded to bfloat16",
        inputs(same, same, rounded),
        keeps_a_key,
        WIDE,
    ),
    "dv_of_unmasked_weights": ("gradient of v by weights before the mask", values_unmasked, drops, DTYPES),
    "dk_of_other_groups": (
        "gradients of k and v summed over heads h % Hkv",
        of_form(Form(spread=modulo)),
        shared_in_groups,
        DTYPES,
    ),
    "dk_of_the_first_in_group": (
        "gradients of k and v of one head of the group",
        of_form(Form(spread=first_of_group)),
        _shared,
        DTYPES,
    ),
    "softmax_straight_through": (
        "the gradient of weights taken for that of scores",
        of_form(Form(weights=straight_through)),
        both(with_backward, _no_sink),
        DTYPES,
    ),
    "softmax_without_row_sum": (
        "dS = P·dP",
        of_form(Form(weights=no_row_sum)),
        both(with_backward, _no_sink),
        DTYPES,
    ),
    "softmax_unmasked_backward": (
        "the backward pass knows no mask",
        of_form(Form(weights=scores_unmasked)),
        drops,
        DTYPES,
    ),
    "gradient_adds_up": (
        "gradients of k add up over calls",
        lambda setup: hooked(setup, adding),
        with_backward,
        DTYPES,
    ),
    "gradient_of_the_first_call": (
        "gradient of k of the first call, ever after",
        lambda setup: hooked(setup, keeping),
        with_backward,
        DTYPES,
    ),
    "upstream_taken_for_ones": (
        "the gradient of a sum, whatever comes from above",
        ones_upstream,
        keeps_a_key,
        DTYPES,
    ),
    "parameters_without_gradient": (
        "no gradient of the rule's parameters",
        parameters_silent,
        both(_has_parameters, with_backward),
        DTYPES,
    ),
    "projection_without_gradient": (
        "no gradient of w_v",
        projection_silent("w_v"),
        both(has_layer, keeps_a_key),
        DTYPES,
    ),
    "output_without_gradient": (
        "no gradient of w_o",
        projection_silent("w_o"),
        both(projects_out, keeps_a_key),
        DTYPES,
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(
        name=name,
        summary=words,
        prepare=prepare,
        trait="gradient",
        applies=both(applies, with_backward),
        dtypes=dtypes,
        passes=PASSES,
    )
    for name, (words, prepare, applies, dtypes) in KINDS.items()
)
