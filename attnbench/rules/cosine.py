"""The cosine of the angle between query and key, times a learned number for each head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Parameter, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array

SMALLEST_NORM = 1e-12
"""Vectors shorter than this are divided by this instead of their length: the zero vector scores 0."""


def _unit(x: Array) -> Array:
    norm = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return np.asarray(x / np.maximum(norm, x.dtype.type(SMALLEST_NORM)))


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return parameters["beta"] * (_unit(q) @ _unit(k).T)


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    import torch

    norm_dtype = torch.float64 if case.dtype == "float64" else torch.float32
    beta = parameters["beta"].to(norm_dtype)[:, None, None]

    def unit(x: Tensor) -> Tensor:
        wide = x.to(norm_dtype)
        norm: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return wide / norm.clamp_min(SMALLEST_NORM)

    return Scoring(
        dot=DotForm(
            map_q=lambda q: (unit(q) * beta).to(q.dtype),
            map_k=lambda k: unit(k).to(k.dtype),
        )
    )


def _drawn(D: int) -> Parameter:
    def draw(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
        # A cosine of independent vectors deviates by 1/√D from 0.
        return np.asarray(np.sqrt(D) * (1 + rng.random((H, *shape))))

    return Parameter("beta", (), draw)


def _no_gradients(case: Case) -> str | None:
    if case.D == 1:
        return (
            "one feature has no direction: the gradients of q and k are 0, and what is computed is rounding"
        )
    return None


COSINE = Rule(
    name="cosine",
    formula="beta·cos(q, k), beta for each head",
    source="Graves et al. 2014, Neural Turing Machines, eq. 5 and 6",
    reference=_reference,
    inner=lambda q, k, parameters, positions: {"q / |q|": _unit(q)[:, None], "k / |k|": _unit(k)[None]},
    bind=_bind,
    laws=("flip_features", "permute_queries"),
    no_gradients=_no_gradients,
    parameters=lambda case: (_drawn(case.D),),
)
