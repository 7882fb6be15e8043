"""Scaled dot products that tanh keeps within ±c."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.rules.dot import SCALE, dot_products, scale_of, scaled_scores
from attnbench.types.case import Case
from attnbench.types.rule import Constant, DotForm, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array

CAP = 2.0
"""Gemma 2 caps at 50, for trained logits of some tens. Here scores have a standard deviation of 1: at 50
the cap changes ordinary outputs by less than half precision can show. Only inputs with large scores tell a
kernel with a cap of 50 from one without, and layers and float masks have no such inputs."""


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    c = parameters["c"]
    return np.asarray(c * np.tanh(scaled_scores(q, k, parameters, positions) / c))


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm(scale=scale_of(case), cap=case.constant("c", CAP)))


SOFTCAP = Rule(
    name="softcap",
    formula=f"c·tanh(q·k / (c·√D)), c = {CAP:g}",
    source="Gemma Team 2024, Gemma 2: Improving Open Language Models at a Practical Size, section 2",
    reference=_reference,
    bind=_bind,
    inner=dot_products,
    constants=(
        Constant(
            name="c",
            meaning="scores stay within ±c",
            least=0.5,
            most=10_000,
            default=CAP,
            example=5,
        ),
        SCALE,
    ),
    laws=("flip_features", "scale_features", "permute_queries"),
)
