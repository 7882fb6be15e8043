"""The bilinear score: a matrix between query and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Parameter, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return q @ parameters["w"] @ k.T


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    w = parameters["w"]
    return Scoring(dot=DotForm(map_q=lambda q: q @ w))


def _draw(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    # D² products with unit variance each: 1/D makes the scores' variance 1.
    return rng.standard_normal((H, *shape)) / shape[0]


GENERAL = Rule(
    name="general",
    formula="qᵀ w k, w (D, D) for each head",
    source="Luong et al. 2015, Effective Approaches to Attention-based NMT, eq. 8 (general)",
    reference=_reference,
    inner=lambda q, k, parameters, positions: {"qᵀ w": (q @ parameters["w"])[:, None]},
    bind=_bind,
    laws=("permute_queries",),
    parameters=lambda case: (Parameter("w", (case.D, case.D), _draw),),
)
