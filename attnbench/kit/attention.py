"""Attention as most people write it: scores, softmax, weighted values; and its weights alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.derived import derived
from attnbench.kit.dropout import softmax_of
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.heads import matmul_shared
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import scores_of
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Weigh


def attention(setup: Setup, scale_queries: bool = True) -> Call:
    """The function for ``attention``: scores, softmax (float32 for half precision), weighted values.

    It takes q (B, H, Lq, D), k (B, Hkv, Lk, D) and v (B, Hkv, Lk, Dv) and gives (B, H, Lq, Dv), in the
    case's dtype. scale_queries: see :func:`attnbench.kit.scores.scores_of`.
    """
    case = setup.case
    dtype = softmax_dtype(case_dtype(case))
    mask, empty = softmax_mask(setup, dtype)
    queries, keys = slice(0, case.Lq), slice(0, case.Lk)
    softmax = softmax_of(case)

    def made(setup: Setup) -> Call:
        scores = scores_of(setup.scoring, scale_queries)
        sink = setup.scoring.sink
        added = plus_bias(mask, setup.scoring, queries, keys, dtype)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return matmul_shared(softmax(scores(q, k, keys), added, empty, sink), v)

        return attend

    return derived(setup, made)


def weights(setup: Setup, scale_queries: bool = True) -> Weigh:
    """The attention weights of :func:`attention`, by the same steps: of q and k, (B, H, Lq, Lk)."""
    case = setup.case
    dtype = softmax_dtype(case_dtype(case))
    mask, empty = softmax_mask(setup, dtype)
    queries, keys = slice(0, case.Lq), slice(0, case.Lk)
    scores = scores_of(setup.scoring, scale_queries)
    added = plus_bias(mask, setup.scoring, queries, keys, dtype)
    softmax = softmax_of(case)

    def weigh(q: Tensor, k: Tensor) -> Tensor:
        return softmax(scores(q, k, keys), added, empty, setup.scoring.sink)

    return weigh
