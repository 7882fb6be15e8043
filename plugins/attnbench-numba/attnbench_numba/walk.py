"""The walk that both backends share: head by head, some queries at a time, over blocks of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import additive_mask
from attnbench_numba.kernels import LANES, softmax_step
from attnbench_numba.ranges import key_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

    Array = NDArray[Any]
    Scores = Callable[[slice, slice, Array], None]
    ScoresOfHead = Callable[[Array, Array, int], Scores]


@dataclass(frozen=True)
class Block:
    """Queries and keys of a block, so few that its scores and the keys stay in a core's caches."""

    rows: int
    cols: int


def attend(setup: Setup, block: Block, scores_of_head: ScoresOfHead) -> Call:
    """The function of `attention`, of tensors.

    scores_of_head: ``scores_of_head(q, k, h)`` for q (Lq, D) and k (Lk, D) of head h gives a function that
    writes the scores of some queries and keys, ``slice``s, into an array of that shape, without bias and
    mask. Both are contiguous.
    """
    import torch

    case = setup.case
    shape, dtype = (case.B, case.H, case.Lq, case.Dv), case_dtype(case)
    walk_head = _walk(setup, block)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty(shape, dtype=dtype)
        # Views, as of a layer's heads, are copied: the loops are compiled for rows that lie together.
        queries, keys, values, whole = (x.contiguous().numpy() for x in (q, k, v, out))
        for b, h in np.ndindex(case.B, case.H):
            shared = h // case.group
            scores = scores_of_head(queries[b, h], keys[b, shared], h)
            walk_head(scores, values[b, shared], b, h, whole[b, h])
        return out

    return call


def _walk(setup: Setup, block: Block) -> Callable[[Scores, Array, int, int, Array], None]:
    case, dtype = setup.case, np.dtype(setup.case.dtype)
    step = softmax_step(case.dtype)
    low, high = key_ranges(case)
    added = _added(setup)
    sink = setup.scoring.sink
    starts = np.full(case.H, np.finfo(dtype).min, dtype) if sink is None else sink.numpy()
    begun = 0 if sink is None else 1
    rows_at_once, cols_at_once = min(block.rows, case.Lq), min(block.cols, case.Lk)

    def walk_head(scores: Scores, values: Array, b: int, h: int, out: Array) -> None:
        """Write the output of a head, (Lq, Dv)."""
        memory = np.empty(rows_at_once * cols_at_once, dtype)
        lanes, shrink = np.empty(LANES, dtype), np.empty(rows_at_once, dtype)
        for top in range(0, case.Lq, rows_at_once):
            rows = slice(top, min(top + rows_at_once, case.Lq))
            count = rows.stop - rows.start
            first, last = low[b, rows], high[b, rows]
            largest, total = np.full(count, starts[h], dtype), np.full(count, begun, dtype)
            summed = np.zeros((count, case.Dv), dtype)
            for left in range(int(first.min()), int(last.max()), cols_at_once):
                cols = slice(left, min(left + cols_at_once, int(last.max())))
                width = cols.stop - cols.start
                weights = memory[: count * width].reshape(count, width)
                scores(rows, cols, weights)
                if added is not None:
                    weights += added[b, h, rows, cols]
                step(weights, left, first, last, largest, total, shrink[:count], lanes)
                summed *= shrink[:count, None]
                summed += weights @ values[cols]
            # A sum is 1 or more in every row that keeps a key, by its largest; 0 in others, as is the rest.
            np.divide(summed, np.maximum(total, 0.5)[:, None], out=out[rows])

    return walk_head


def _added(setup: Setup) -> Array | None:
    """Return the sum of a float mask and the rule's bias, (B, H, Lq, Lk); None if both are 0 everywhere."""
    case = setup.case
    if case.mask.is_range and setup.scoring.bias is None:
        return None
    mask = additive_mask(case, case_dtype(case), "cpu", setup.scoring)
    # A drawn mask of few pairs may keep them all.
    if mask is None:
        return None
    return np.broadcast_to(mask.numpy(), (case.B, case.H, case.Lq, case.Lk))
