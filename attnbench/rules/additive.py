"""Additive scores: tanh of a linear map of the concatenated query and key, then an inner sum.

A linear map of [q ; k] is one of q plus one of k; the hidden width is D. ``additive`` weighs the inner sum
by v, ``additive_sum`` is the same with v = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import Parameter, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


_HIDDEN = "tanh(w_query q + w_key k + bias)"


def _inner(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> dict[str, Array]:
    from_q = (q @ parameters["w_query"].T)[:, None]
    from_k = (k @ parameters["w_key"].T + parameters["bias"])[None]
    total = from_q + from_k
    return {
        "w_query q": from_q,
        "w_key k + bias": from_k,
        "w_query q + w_key k + bias": total,
        _HIDDEN: np.tanh(total),
    }


def _weighted(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return _inner(q, k, parameters, positions)[_HIDDEN] @ parameters["v"]


def _summed(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return np.asarray(_inner(q, k, parameters, positions)[_HIDDEN].sum(axis=-1))


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    w_query, w_key = parameters["w_query"].mT, parameters["w_key"].mT
    bias = parameters["bias"][:, None]
    v = parameters["v"][:, None, :, None] if "v" in parameters else None

    def scores(q: Tensor, k: Tensor, cols: slice) -> Tensor:
        from_q, from_k = q @ w_query, k @ w_key + bias
        hidden = (from_q[:, :, :, None] + from_k[:, :, None]).tanh()
        return hidden.sum(-1) if v is None else (hidden @ v)[..., 0]

    return Scoring(scores=scores)


def _draw_matrix(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    # Together with the other matrix: a hidden value of variance 1 (2·D terms).
    return np.asarray(rng.standard_normal((H, *shape)) / np.sqrt(2 * shape[0]))


def _draw_small_matrix(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    # D hidden values are summed unweighted: smaller ones, so that the sum has a deviation of about 2.
    return np.asarray(_draw_matrix(rng, H, shape) * min(1.0, 2.5 / np.sqrt(shape[0])))


def _draw_bias(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal((H, *shape))


def _draw_v(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.standard_normal((H, *shape)) * 2.5 / np.sqrt(shape[0]))


ADDITIVE = Rule(
    name="additive",
    formula=f"v·{_HIDDEN}, hidden width D",
    source="Bahdanau et al. 2015, NMT by Jointly Learning to Align and Translate, A.1.2",
    reference=_weighted,
    inner=_inner,
    bind=_bind,
    laws=("permute_queries",),
    parameters=lambda case: (
        Parameter("w_query", (case.D, case.D), _draw_matrix),
        Parameter("w_key", (case.D, case.D), _draw_matrix),
        Parameter("bias", (case.D,), _draw_bias),
        Parameter("v", (case.D,), _draw_v),
    ),
    has_dot_form=False,
    score_elements=lambda case: case.D,
    # Per hidden value an addition, a tanh, and the multiply-add with v; the products with w aren't per pair.
    score_flops=lambda case: 4 * case.D,
)

ADDITIVE_SUM = Rule(
    name="additive_sum",
    formula=f"Σ {_HIDDEN}, hidden width D",
    source="Bahdanau et al. 2015, A.1.2, with v = 1",
    reference=_summed,
    inner=_inner,
    bind=_bind,
    laws=("permute_queries",),
    parameters=lambda case: (
        Parameter("w_query", (case.D, case.D), _draw_small_matrix),
        Parameter("w_key", (case.D, case.D), _draw_small_matrix),
        Parameter("bias", (case.D,), _draw_bias),
    ),
    has_dot_form=False,
    score_elements=lambda case: case.D,
    score_flops=lambda case: 3 * case.D,
)
