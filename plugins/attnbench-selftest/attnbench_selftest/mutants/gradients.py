"""Wrong gradients of right outputs that nobody computes by mistake: none, too large, negated, rounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mistakes.gradients import hooked, unmasked, with_gradient_of, with_gradient_times
from attnbench.testing.mistakes.parts import RIGHT, Form, built, heads_of, right_weights
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, PASSES, Case, Dtype
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.known import WIDE
from attnbench_selftest.mutants.mutant import Applies, Mutant
from attnbench_selftest.mutants.where import (
    both,
    drops,
    has_layer,
    keeps_a_key,
    no_sink,
    projects_out,
    with_backward,
)

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Change = Callable[[Tensor], Tensor]


def _inputs(q: Change, k: Change, v: Change) -> Callable[[Setup], Call]:
    """The right heads behind something done to their inputs."""

    def prepare(setup: Setup) -> Call:
        attend = heads_of(RIGHT, setup)
        return for_operation(lambda a, b, c: attend(q(a), k(b), v(c)), setup)

    return prepare


def _same(x: Tensor) -> Tensor:
    return x


_none = partial(with_gradient_times, 0)


def _no_last_row(x: Tensor) -> Tensor:
    """No gradient of the last row (B, H, row, D)."""
    import torch

    return torch.cat((x[:, :, :-1], _none(x[:, :, -1:])), 2)


def _rounded(x: Tensor) -> Tensor:
    """A gradient rounded to bfloat16."""
    import torch

    return hooked(x, lambda g: g.to(torch.bfloat16).to(g.dtype))


def _values_unmasked(setup: Setup) -> Call:
    """The gradient of v by weights before the mask."""
    blind, seeing = heads_of(Form(weights=unmasked), setup), heads_of(RIGHT, setup)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wrong = blind(q.detach(), k.detach(), v)
        return seeing(q, k, v.detach()) + (wrong - wrong.detach())

    return for_operation(attend, setup)


def _remembering(make: Callable[[], Change]) -> Callable[[Setup], Call]:
    """The gradient of the keys goes through a function that remembers."""

    def prepare(setup: Setup) -> Call:
        attend, change = heads_of(RIGHT, setup), make()
        return for_operation(lambda q, k, v: attend(q, hooked(k, change), v), setup)

    return prepare


def _adding() -> Change:
    """Give the sum of all gradients so far."""
    sums: list[Tensor] = []

    def add(g: Tensor) -> Tensor:
        sums[:] = [sums[0] + g if sums else g]
        return sums[0].clone()

    return add


def _keeping() -> Change:
    """Give the first gradient ever after."""
    kept: list[Tensor] = []

    def keep(g: Tensor) -> Tensor:
        if not kept:
            kept.append(g.clone())
        return kept[0].clone()

    return keep


def _straight_through(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return with_gradient_of(scores, right_weights(setup, scores, added))


def _parameters_silent(setup: Setup) -> Call:
    """The rule's parameters get gradients of zeros."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        silent = {name: _none(p) for name, p in setup.rule_parameters.items()}
        bound = replace(setup, scoring=setup.rule.bind(setup.case, silent), rule_parameters=silent)
        return built(RIGHT, bound)(q, k, v)

    return call


def _projection_silent(name: str) -> Callable[[Setup], Call]:
    """One projection gets a gradient of zeros."""

    def prepare(setup: Setup) -> Call:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            other = {**setup.projections, name: _none(setup.projections[name])}
            return built(RIGHT, replace(setup, projections=other))(q, k, v)

        return call

    return prepare


def _has_parameters(case: Case, rule: Rule) -> bool:
    return bool(rule.parameters(case))


def _last_key_kept(case: Case, rule: Rule) -> bool:
    return case.mask.is_none and case.Lk > 1


KINDS: dict[str, tuple[str, Callable[[Setup], Call], Applies, tuple[Dtype, ...]]] = {
    "dq_zero": ("no gradient of q", _inputs(_none, _same, _same), with_backward, DTYPES),
    "dk_zero": ("no gradient of k", _inputs(_same, _none, _same), with_backward, DTYPES),
    "dv_zero": ("no gradient of v", _inputs(_same, _same, _none), keeps_a_key, DTYPES),
    "dk_1_percent": (
        "gradient of k 1 % too large",
        _inputs(_same, partial(with_gradient_times, 1.01), _same),
        with_backward,
        WIDE,
    ),
    "dq_negated": (
        "gradient of q with the other sign",
        _inputs(partial(with_gradient_times, -1), _same, _same),
        with_backward,
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
    "gradient_adds_up": ("gradients of k add up over calls", _remembering(_adding), with_backward, DTYPES),
    "gradient_of_the_first_call": (
        "gradient of k of the first call, ever after",
        _remembering(_keeping),
        with_backward,
        DTYPES,
    ),
    "softmax_straight_through": (
        "the gradient of weights taken for that of scores",
        partial(built, Form(weights=_straight_through)),
        no_sink,
        DTYPES,
    ),
    "parameters_without_gradient": (
        "no gradient of the rule's parameters",
        _parameters_silent,
        _has_parameters,
        DTYPES,
    ),
    "projection_without_gradient": (
        "no gradient of w_v",
        _projection_silent("w_v"),
        both(has_layer, keeps_a_key),
        DTYPES,
    ),
    "output_without_gradient": (
        "no gradient of w_o",
        _projection_silent("w_o"),
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
