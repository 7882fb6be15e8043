"""Dot products of queries and keys: as they are, and divided by √D."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


def scaled_scores(q: Array, k: Array) -> Array:
    """q·k / √D for q (rows, D) and k (Lk, D), in their dtype."""
    return np.asarray(q @ k.T / np.sqrt(q.dtype.type(q.shape[-1])))


def _dot(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return q @ k.T


def _scaled_dot(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return scaled_scores(q, k)


def _bind_dot(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm())


def _bind_scaled_dot(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm(scale=case.D**-0.5))


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
    reference=_scaled_dot,
    bind=_bind_scaled_dot,
    laws=("flip_features", "scale_features", "permute_queries"),
)
