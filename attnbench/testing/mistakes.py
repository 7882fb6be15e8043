"""Common mistakes as code that makes them, to compare a wrong answer with.

Most are mutants whose outputs or gradients are wrong; a few mistakes of first tries are added here. Each
computes the case in float64, so that its answer shows the mistake and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from attnbench.selftest.zoo import (
    wrong_gradients,
    wrong_heads,
    wrong_layer,
    wrong_masks,
    wrong_precision,
    wrong_rules,
    wrong_scores,
    wrong_softmax,
    wrong_tails,
)
from attnbench.selftest.zoo.animal import Animal
from attnbench.selftest.zoo.form import Form, mistaken, normalised
from attnbench.selftest.zoo.mask_dials import Added, added
from attnbench.selftest.zoo.where import keeps_a_key, other_mask, scores_matter
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor


def _inverted(case: Case) -> Added:
    """Drop the pairs that are kept, and keep the pairs that are dropped."""
    return np.where(np.isfinite(added(case)), -np.inf, 0.0)


def _heads_for_positions(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    """Read the memory of (B, H, Lq, Dv) as (B, Lq, H, Dv)."""
    out = weights @ v
    return out.reshape(out.shape[0], out.shape[2], out.shape[1], out.shape[3]).transpose(1, 2)


def _transposed(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return weights.mT @ v if setup.case.Lq == setup.case.Lk else weights @ v


def _summed(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Share the weights evenly, without the scores."""
    return normalised(setup, scores.to(added.dtype) * 0 + added).to(scores.dtype)


def _square(case: Case, rule: Rule) -> bool:
    return case.Lq == case.Lk and scores_matter(case, rule)


def _other_memory(case: Case, rule: Rule) -> bool:
    return case.H > 1 and case.Lq > 1 and keeps_a_key(case, rule)


FIRST_TRIES: tuple[Animal, ...] = (
    mistaken(
        "mask_inverted",
        "the mask is read the other way round: kept pairs dropped, dropped ones kept",
        Form(mask=_inverted),
        other_mask(_inverted),
    ),
    mistaken(
        "layouts_exchanged",
        "the output's memory has heads and queries in the other order",
        Form(mix=_heads_for_positions),
        _other_memory,
    ),
    mistaken("weights_transposed", "weights are transposed", Form(mix=_transposed), _square),
    mistaken("scores_ignored", "all keys that are kept weigh the same", Form(weights=_summed), scores_matter),
)

_WITHOUT = frozenset({"one_element_1_percent_off", "one_row_a_64th_off", "one_row_halved", "sigmoid"})
"""Mutants that nobody writes by mistake."""

VALUES: tuple[Animal, ...] = tuple(
    animal
    for animal in (
        *FIRST_TRIES,
        *wrong_scores.ANIMALS,
        *wrong_softmax.ANIMALS,
        *wrong_masks.ANIMALS,
        *wrong_heads.ANIMALS,
        *wrong_tails.ANIMALS,
        *wrong_rules.ANIMALS,
        *wrong_layer.ANIMALS,
        *wrong_precision.ANIMALS,
    )
    if animal.trait == "value" and animal.name not in _WITHOUT
)
GRADIENTS: tuple[Animal, ...] = tuple(a for a in wrong_gradients.ANIMALS if a.trait == "gradient")


def mistakes_for(case: Case, rule: Rule) -> Iterator[Animal]:
    """Yield the mistakes that can show in a case, the more particular before the more general."""
    for animal in VALUES if case.pass_ == "forward" else (*GRADIENTS, *VALUES):
        if case.operation in animal.operations and animal.applies(case, rule):
            yield animal
