"""Dot products of queries and keys: as they are, and divided by √D."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import Constant, DotForm, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


SCALE = Constant(
    name="scale",
    meaning="multiplies q·k in place of 1/√D",
    least=1e-4,
    most=4,
    default=lambda case: case.D**-0.5,
    example=0.3,
)


def scaled_scores(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    """q·k · scale, or q·k / √D where that is the scale, for q (rows, D) and k (Lk, D), in their dtype."""
    D = q.shape[-1]
    if parameters.get("scale", D**-0.5) != D**-0.5:
        return q @ k.T * parameters["scale"]
    return np.asarray(q @ k.T / np.sqrt(q.dtype.type(D)))


def scale_of(case: Case) -> float:
    """The scale that a case chooses, or 1/√D."""
    return case.constant("scale", case.D**-0.5)


def dot_products(
    q: Array, k: Array, parameters: Mapping[str, Array], positions: Array
) -> Mapping[str, Array]:
    """q·k before it is scaled, for ``attnbench explain``."""
    return {"q·k": (q @ k.T)[..., None]}


def _dot(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return q @ k.T


def _bind_dot(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm())


def _bind_scaled_dot(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm(scale=scale_of(case)))


DOT = Rule(
    name="dot",
    formula="q·k",
    source="Luong et al. 2015, Effective Approaches to Attention-based NMT, eq. 8 (dot)",
    reference=_dot,
    bind=_bind_dot,
    laws=("flip_features", "scale_features", "permute_queries"),
)

SCALED_DOT = Rule(
    name="scaled_dot",
    formula="q·k / √D",
    source="Vaswani et al. 2017, Attention Is All You Need, eq. 1",
    reference=scaled_scores,
    bind=_bind_scaled_dot,
    inner=dot_products,
    constants=(SCALE,),
    laws=("flip_features", "scale_features", "permute_queries"),
)
