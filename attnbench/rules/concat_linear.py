"""Logits straight from a linear map of a query joined with the key of its own position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import Parameter, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return np.concatenate([q, k], axis=-1) @ parameters["w"].T + parameters["bias"]


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    import torch

    w, bias = parameters["w"], parameters["bias"][:, None]

    def scores(q: Tensor, k: Tensor, cols: slice) -> Tensor:
        joined = torch.cat([q, k], dim=-1)
        return joined @ w[:, cols].mT + bias[..., cols]

    return Scoring(scores=scores)


def _draw_w(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.standard_normal((H, *shape)) / np.sqrt(shape[1]))


def _draw_bias(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal((H, *shape)) / 2


CONCAT_LINEAR = Rule(
    name="concat_linear",
    formula="logits of query i = w [q_i ; k_i] + bias, w (Lk, 2·D) for each head",
    source="PyTorch tutorial, Translation with a Sequence to Sequence Network and Attention, AttnDecoderRNN",
    reference=_reference,
    bind=_bind,
    parameters=lambda case: (
        Parameter("w", (case.Lk, 2 * case.D), _draw_w),
        Parameter("bias", (case.Lk,), _draw_bias),
    ),
    pairs_keys=True,
    concatenates=True,
    has_dot_form=False,
    score_flops=lambda case: 4 * case.D,
)
