"""Scaled dot products that tanh keeps within ±CAP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.rules.dot import scaled_scores
from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array

CAP = 2.0
"""Gemma 2 caps at 50, for trained logits of some tens. Here scores have a standard deviation of 1: at 50
the cap would change the output by less than half precision can show, and a kernel without it would pass."""


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return np.asarray(CAP * np.tanh(scaled_scores(q, k) / CAP))


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm(scale=case.D**-0.5, cap=CAP))


SOFTCAP = Rule(
    name="softcap",
    formula=f"c·tanh(q·k / (c·√D)), c = {CAP:g}",
    source="Gemma Team 2024, Gemma 2: Improving Open Language Models at a Practical Size, section 2",
    reference=_reference,
    bind=_bind,
    laws=("flip_features", "scale_features", "permute_queries"),
)
