"""Mistakes in the layer around the heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.testing.mutants.mutant import RIGHT, Applies, Form, Mutant, built, mistaken, right_scores
from attnbench.testing.mutants.where import (
    both,
    keeps_a_key,
    projects_out,
    scaled,
    scores_matter,
    several_heads,
)
from attnbench.types.backend import Setup
from attnbench.types.case import Case, output_shape
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Projections = Mapping[str, Tensor]


def _with(change: Callable[[Setup], Projections]) -> Callable[[Setup], Call]:
    """The right layer with other projections."""
    return lambda setup: built(RIGHT, replace(setup, projections={**setup.projections, **change(setup)}))


def _without(letter: str) -> Callable[[Setup], Call]:
    name = f"b_{letter}"
    return _with(lambda setup: {name: setup.projections[name] * 0})


def _exchanged(one: str, other: str) -> Callable[[Setup], Call]:
    return _with(lambda setup: {one: setup.projections[other], other: setup.projections[one]})


def _joined_exchanged(setup: Setup) -> Projections:
    """[merged ; queries] for [queries ; merged]: the columns of the matrix trade places."""
    import torch

    w = setup.projections["w_o"]
    split = setup.case.H * setup.case.Dv
    return {"w_o": torch.cat((w[:, split:], w[:, :split]), 1)}


def _residual(setup: Setup) -> Call:
    layer = built(RIGHT, setup)
    return lambda queries, keys, values: layer(queries, keys, values) + queries


def _context_ignored(setup: Setup) -> Call:
    layer = built(RIGHT, setup)
    return lambda queries, keys, values: layer(queries, queries, queries)


def _by_the_model_width(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.case.layer is not None
    return right_scores(setup, q * (setup.case.D / setup.case.layer.E) ** 0.5, k)


def _bias(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.bias


def _not_joined(case: Case, rule: Rule) -> bool:
    return not rule.concatenates


def _joined(case: Case, rule: Rule) -> bool:
    return rule.concatenates


def _square(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.E == case.H * case.Dv > 1


def _wide(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.E > 1


def _same_keys_and_values(case: Case, rule: Rule) -> bool:
    return case.Dv == case.D


def _same_queries_and_keys(case: Case, rule: Rule) -> bool:
    return case.Hkv == case.H


def _of_the_width(case: Case, rule: Rule) -> bool:
    return output_shape(case)[-1] == (case.layer.E if case.layer else 0)


def _same_lengths(case: Case, rule: Rule) -> bool:
    return case.Lq == case.Lk and not case.is_self_attention


def _other_width(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.E != case.D


KINDS: dict[str, tuple[str, Callable[[Setup], Call], Applies]] = {
    "bias_of_queries_forgotten": ("no b_q", _without("q"), both(_bias, scores_matter)),
    "bias_of_values_forgotten": ("no b_v", _without("v"), both(_bias, keeps_a_key)),
    "bias_of_the_output_forgotten": ("no b_o", _without("o"), both(_bias, projects_out)),
    "bias_of_the_output_by_head": (
        "b_o added once for each head",
        _with(lambda setup: {"b_o": setup.projections["b_o"] * setup.case.H}),
        both(_bias, projects_out, several_heads),
    ),
    "output_matrix_transposed": (
        "w_oᵀ for w_o where it is square",
        _with(lambda setup: {"w_o": setup.projections["w_o"].mT}),
        both(_square, projects_out, _not_joined, keeps_a_key),
    ),
    "keys_and_values_exchanged": (
        "w_k makes values and w_v keys",
        _exchanged("w_k", "w_v"),
        both(_same_keys_and_values, keeps_a_key),
    ),
    "queries_and_keys_exchanged": (
        "w_q makes keys and w_k queries",
        _exchanged("w_q", "w_k"),
        both(_same_queries_and_keys, _wide, scores_matter),
    ),
    "output_joined_in_wrong_order": (
        "[heads ; queries] for [queries ; heads] before the last map",
        _with(_joined_exchanged),
        both(_joined, projects_out),
    ),
    "residual_added": ("the source of the queries is added", _residual, _of_the_width),
    "context_ignored": (
        "attends to the queries' own source",
        _context_ignored,
        both(_same_lengths, keeps_a_key),
    ),
}

MUTANTS: tuple[Mutant, ...] = (
    *(
        Mutant(
            name=name,
            summary=words,
            prepare=prepare,
            applies=applies,
            operations=("multihead",),
        )
        for name, (words, prepare, applies) in KINDS.items()
    ),
    mistaken(
        "scale_of_the_model_width",
        "divided by √E for √D",
        Form(scores=_by_the_model_width),
        both(scaled, _other_width),
        operations=("multihead",),
    ),
)
