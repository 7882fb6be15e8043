"""Attention as most people write it: scores, softmax, weighted values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dropout import softmax_of
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.heads import matmul_shared
from attnbench.kit.masks import additive_mask, empty_rows
from attnbench.kit.scores import scores_of
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def attention(setup: Setup, scale_queries: bool = True) -> Call:
    """The function for ``attention``: scores, softmax (float32 for half precision), weighted values."""
    case = setup.case
    scores = scores_of(setup.scoring, scale_queries)
    sink = setup.scoring.sink
    softmax = softmax_of(case)
    added = additive_mask(case, softmax_dtype(case_dtype(case)), case.device, setup.scoring)
    empty = empty_rows(case, case.device)
    every = slice(0, case.Lk)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return matmul_shared(softmax(scores(q, k, every), added, empty, sink), v)

    return attend
