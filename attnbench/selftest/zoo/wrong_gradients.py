"""Wrong gradients behind right outputs: of inputs, through the softmax, of parameters, over calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.selftest.zoo.animal import Animal, Applies
from attnbench.selftest.zoo.form import Form
from attnbench.selftest.zoo.gradient_tricks import (
    adding,
    factor,
    first_of_group,
    hooked,
    inputs,
    keeping,
    modulo,
    no_last_row,
    no_row_sum,
    none,
    of_form,
    one_percent,
    ones_upstream,
    parameters_silent,
    projection_silent,
    queries_unscaled,
    rounded,
    same,
    scores_unmasked,
    straight_through,
    values_unmasked,
)
from attnbench.selftest.zoo.where import SCALED, both, drops, keeps_a_key, with_backward
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, PASSES, Case, Dtype
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.backend import Call


def _no_sink(case: Case, rule: Rule) -> bool:
    """Where there is one, no gradient at all reaches it, which is an error and needs no judge."""
    return rule.sink is None


def _scaled(case: Case, rule: Rule) -> bool:
    return rule.name in SCALED and case.D > 1


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
        _scaled,
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
        _shared_in_groups,
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
        both(_layer, keeps_a_key),
        DTYPES,
    ),
    "output_without_gradient": (
        "no gradient of w_o",
        projection_silent("w_o"),
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
