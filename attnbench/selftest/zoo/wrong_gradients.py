"""Wrong gradients behind right outputs.

Most are made of two terms: what is right, without a gradient, and a difference of 0 that has the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.selftest.zoo.animal import Animal, Applies
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
from attnbench.selftest.zoo.where import both, drops, keeps_a_key, with_backward
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


def _inputs(q: Change, k: Change, v: Change) -> Callable[[Setup], Call]:
    """The right heads behind something done to their inputs."""

    def prepare(setup: Setup) -> Call:
        attend = heads_of(RIGHT, setup)
        return for_operation(lambda a, b, c: attend(q(a), k(b), v(c)), setup)

    return prepare


def _same(x: Tensor) -> Tensor:
    return x


def _form(form: Form) -> Callable[[Setup], Call]:
    return lambda setup: built(form, setup)


def _none(x: Tensor) -> Tensor:
    return factor(x, 0)


def _one_percent(x: Tensor) -> Tensor:
    return factor(x, 1.01)


def _no_last_row(x: Tensor) -> Tensor:
    import torch

    return torch.cat((x[:, :, :-1], _none(x[:, :, -1:])), 2)


def _hook(x: Tensor, change: Change) -> Tensor:
    """The same values, whose gradient is changed on its way back."""
    same = x.view_as(x)
    if same.requires_grad:
        same.register_hook(change)  # type: ignore[no-untyped-call]
    return same


def _rounded(x: Tensor) -> Tensor:
    import torch

    return _hook(x, lambda g: g.to(torch.bfloat16).to(g.dtype))


def _hooked(setup: Setup, make: Callable[[], Change]) -> Call:
    """The right heads; the gradient of their keys goes through a function that remembers."""
    attend, change = heads_of(RIGHT, setup), make()
    return for_operation(lambda q, k, v: attend(q, _hook(k, change), v), setup)


def _adding() -> Change:
    sums: list[Tensor] = []

    def add(g: Tensor) -> Tensor:
        sums[:] = [sums[0] + g if sums else g]
        return sums[0].clone()

    return add


def _keeping() -> Change:
    kept: list[Tensor] = []

    def keep(g: Tensor) -> Tensor:
        if not kept:
            kept.append(g.clone())
        return kept[0].clone()

    return keep


def _ones_upstream(setup: Setup) -> Call:
    """As if the gradient of the output were ones everywhere: right for a sum."""
    import torch

    attend = heads_of(RIGHT, setup)
    return for_operation(lambda q, k, v: _hook(attend(q, k, v), torch.ones_like), setup)


def _modulo(setup: Setup, x: Tensor) -> Tensor:
    return in_place_of(right_spread(setup, x), x.repeat(1, setup.case.group, 1, 1))


def _first_of_group(setup: Setup, x: Tensor) -> Tensor:
    import torch

    spread = right_spread(setup, x)
    first = torch.arange(setup.case.H, device=x.device)[:, None, None] % setup.case.group == 0
    return torch.where(first, spread, _none(spread))


def _unmasked(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    bare = added.masked_fill(added.isneginf(), 0)
    return normalised(setup, scores.to(added.dtype) + bare).to(scores.dtype)


def _scores_unmasked(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return in_place_of(right_weights(setup, scores, added), _unmasked(setup, scores, added))


def _straight_through(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return in_place_of(right_weights(setup, scores, added), scores)


def _no_row_sum(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """dS = P · dP, without the sum over the row that is taken off."""
    weights = right_weights(setup, scores, added)
    return in_place_of(weights, weights.detach() * scores)


def _values_unmasked(setup: Setup) -> Call:
    """dv from weights before the mask."""
    blind = heads_of(Form(weights=_unmasked), setup)
    seeing = heads_of(RIGHT, setup)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wrong = blind(q.detach(), k.detach(), v)
        return seeing(q, k, v.detach()) + (wrong - wrong.detach())

    return for_operation(attend, setup)


def _queries_unscaled(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.dot is not None
    return right_scores(setup, factor(q, 1 / setup.scoring.dot.scale), k)


def _parameters_silent(setup: Setup) -> Call:
    """The rule's parameters get gradients of zeros."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        silent = {name: _none(p) for name, p in setup.rule_parameters.items()}
        bound = replace(setup, scoring=setup.rule.bind(setup.case, silent), rule_parameters=silent)
        return built(RIGHT, bound)(q, k, v)

    return call


def _projection_silent(name: str) -> Callable[[Setup], Call]:
    def prepare(setup: Setup) -> Call:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            other = {**setup.projections, name: _none(setup.projections[name])}
            return built(RIGHT, replace(setup, projections=other))(q, k, v)

        return call

    return prepare


def _scaled(case: Case, rule: Rule) -> bool:
    return rule.name in ("scaled_dot", "alibi", "softcap", "sinks") and case.D > 1


def _shared_in_groups(case: Case, rule: Rule) -> bool:
    return 1 < case.Hkv < case.H


def _shared(case: Case, rule: Rule) -> bool:
    return case.Hkv < case.H


def _has_parameters(case: Case, rule: Rule) -> bool:
    return bool(rule.parameters(case))


def _layer(case: Case, rule: Rule) -> bool:
    return case.layer is not None


def _layer_out(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.out


def _last_key_kept(case: Case, rule: Rule) -> bool:
    return case.mask.is_none and case.Lk > 1


WIDE: tuple[Dtype, ...] = ("float32", "float64")

KINDS: dict[str, tuple[str, Callable[[Setup], Call], Applies, tuple[Dtype, ...]]] = {
    "dq_zero": ("no gradient of q", _inputs(_none, _same, _same), with_backward, DTYPES),
    "dk_zero": ("no gradient of k", _inputs(_same, _none, _same), with_backward, DTYPES),
    "dv_zero": ("no gradient of v", _inputs(_same, _same, _none), keeps_a_key, DTYPES),
    "dk_1_percent": ("gradient of k 1 % too large", _inputs(_same, _one_percent, _same), with_backward, WIDE),
    "dq_negated": (
        "gradient of q with the other sign",
        _inputs(lambda q: factor(q, -1), _same, _same),
        with_backward,
        DTYPES,
    ),
    "dq_without_scale": (
        "gradient of q not divided by √D",
        _form(Form(scores=_queries_unscaled)),
        _scaled,
        DTYPES,
    ),
    "dv_without_last_key": (
        "no gradient of the last value",
        _inputs(_same, _same, _no_last_row),
        _last_key_kept,
        DTYPES,
    ),
    "dv_in_bfloat16": (
        "gradient of v rounded to bfloat16",
        _inputs(_same, _same, _rounded),
        keeps_a_key,
        WIDE,
    ),
    "dv_of_unmasked_weights": ("gradient of v by weights before the mask", _values_unmasked, drops, DTYPES),
    "dk_of_other_groups": (
        "gradients of k and v summed over heads h % Hkv",
        _form(Form(spread=_modulo)),
        _shared_in_groups,
        DTYPES,
    ),
    "dk_of_the_first_in_group": (
        "gradients of k and v of one head of the group",
        _form(Form(spread=_first_of_group)),
        _shared,
        DTYPES,
    ),
    "softmax_straight_through": (
        "the gradient of weights taken for that of scores",
        _form(Form(weights=_straight_through)),
        with_backward,
        DTYPES,
    ),
    "softmax_without_row_sum": ("dS = P·dP", _form(Form(weights=_no_row_sum)), with_backward, DTYPES),
    "softmax_unmasked_backward": (
        "the backward pass knows no mask",
        _form(Form(weights=_scores_unmasked)),
        drops,
        DTYPES,
    ),
    "gradient_adds_up": (
        "gradients of k add up over calls",
        lambda setup: _hooked(setup, _adding),
        with_backward,
        DTYPES,
    ),
    "gradient_of_the_first_call": (
        "gradient of k of the first call, ever after",
        lambda setup: _hooked(setup, _keeping),
        with_backward,
        DTYPES,
    ),
    "upstream_taken_for_ones": (
        "the gradient of a sum, whatever comes from above",
        _ones_upstream,
        keeps_a_key,
        DTYPES,
    ),
    "parameters_without_gradient": (
        "no gradient of the rule's parameters",
        _parameters_silent,
        both(_has_parameters, with_backward),
        DTYPES,
    ),
    "projection_without_gradient": (
        "no gradient of w_v",
        _projection_silent("w_v"),
        both(_layer, keeps_a_key),
        DTYPES,
    ),
    "output_without_gradient": (
        "no gradient of w_o",
        _projection_silent("w_o"),
        both(_layer_out, keeps_a_key),
        DTYPES,
    ),
}

ANIMALS: tuple[Animal, ...] = tuple(
    Animal(
        name=name,
        summary=words,
        prepare=prepare,
        right=False,
        trait="gradient",
        applies=both(applies, with_backward),
        dtypes=dtypes,
        passes=PASSES,
    )
    for name, (words, prepare, applies, dtypes) in KINDS.items()
)
