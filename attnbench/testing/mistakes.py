"""Common mistakes as code that makes them, to compare a wrong answer with.

Most are the mutants whose outputs or gradients are wrong; a few are added that a first try often has. Each
computes the case in float64, so that its answer shows the mistake and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from attnbench.testing.mutants import (
    gradient_mistakes,
    head_mistakes,
    layer_mistakes,
    mask_mistakes,
    precision_mistakes,
    rule_mistakes,
    score_mistakes,
)
from attnbench.testing.mutants.masks import Added, added
from attnbench.testing.mutants.mutant import Form, Mutant, mistaken, normalised
from attnbench.testing.mutants.where import keeps_a_key, other_mask, scores_matter
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


FIRST_TRIES: tuple[Mutant, ...] = (
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

VALUES: tuple[Mutant, ...] = (
    *FIRST_TRIES,
    *score_mistakes.MUTANTS,
    *mask_mistakes.MUTANTS,
    *head_mistakes.MUTANTS,
    *rule_mistakes.MUTANTS,
    *layer_mistakes.MUTANTS,
    *precision_mistakes.MUTANTS,
)
GRADIENTS: tuple[Mutant, ...] = gradient_mistakes.MUTANTS


def mistakes_for(case: Case, rule: Rule) -> Iterator[Mutant]:
    """Yield the mutants whose mistake can show in a case; of two with one answer the specific one first."""
    for mutant in VALUES if case.pass_ == "forward" else (*GRADIENTS, *VALUES):
        if case.operation in mutant.operations and mutant.applies(case, rule):
            yield mutant
