"""chunked: blocks of queries and keys with an online softmax; memory grows with L instead of L².

Milakov & Gimelshein 2018, Online normalizer calculation for softmax; Rabe & Staats 2021, Self-attention
Does Not Need O(n²) Memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation, matmul_shared
from attnbench.kit.masks import Chunk, chunks_of, empty_rows
from attnbench.kit.scores import map_keys, map_queries, scores_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.rule import DotForm, Scoring

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call

    Block = Callable[[slice, slice], tuple[Tensor, Tensor]]

ELEMENTS = 1 << 18
"""Elements of a block over all batches and heads: a MiB of float32 stays in or near a core's cache."""

LONGEST_COLS, FEWEST_ROWS, MOST_ROWS = 256, 16, 512


def block_shape(setup: Setup) -> tuple[int, int]:
    """Return the rows and columns of a block that stays in cache."""
    case = setup.case
    pairs = max(1, ELEMENTS // (case.B * case.H * setup.rule.score_elements(case)))
    cols = min(case.Lk, LONGEST_COLS, max(FEWEST_ROWS, pairs // FEWEST_ROWS))
    rows = min(case.Lq, MOST_ROWS, max(FEWEST_ROWS, pairs // cols))
    if rows == case.Lq:
        cols = min(case.Lk, max(cols, pairs // rows))
    return rows, cols


def attention(setup: Setup) -> Call:
    """Loop over blocks of queries; key blocks that the mask drops completely are never read."""
    dot, over_blocks = setup.scoring.dot, blockwise(setup)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # A call maps keys once, so that the scores of a block are a plain product.
        k = k if dot is None else map_keys(dot, k)
        return over_blocks(q, lambda keys, cols: (k[:, :, keys], v[:, :, cols]))

    return attend


def blockwise(setup: Setup) -> Callable[[Tensor, Block], Tensor]:
    """Make a function of q, and of a function of two ranges: mapped keys of one, and values of the other.

    The ranges are the same, unless the rule pairs keys with queries.
    """
    import torch

    case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
    pairs_keys = setup.rule.pairs_keys
    mapped = setup.scoring if dot is None else Scoring(dot=DotForm(scale=dot.scale, cap=dot.cap))
    scores = scores_of(mapped)
    wide = softmax_dtype(case_dtype(case))
    lowest = torch.finfo(wide).min
    chunks = chunks_of(setup, wide, block_shape(setup))
    empty = empty_rows(case, case.device)

    def attend_rows(q: Tensor, of_block: Block, chunk: Chunk) -> Tensor:
        largest, total, out = _start(q, case.Dv, sink, lowest, wide)
        for cols, added in chunk.blocks:
            k, v = of_block(chunk.rows if pairs_keys else cols, cols)
            block = scores(q, k, cols).to(wide)
            if added is not None:
                block = block + added
            before, largest = largest, torch.maximum(largest, block.amax(-1, keepdim=True))
            block = (block - largest).exp_()
            shrink = (before - largest).exp_()
            total = total.mul_(shrink).add_(block.sum(-1, keepdim=True))
            out = out.mul_(shrink).add_(matmul_shared(block.to(v.dtype), v))
        return out / total

    def attend(q: Tensor, of_block: Block) -> Tensor:
        q = q if dot is None else map_queries(dot, q)
        whole = q.new_empty(case.B, case.H, case.Lq, case.Dv)
        for chunk in chunks:
            rows = chunk.rows
            whole[:, :, rows] = attend_rows(q[:, :, rows], of_block, chunk)
        return whole if empty is None else whole.masked_fill_(empty, 0)

    return attend


def _start(
    q: Tensor, Dv: int, sink: Tensor | None, lowest: float, wide: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Largest score, sum of exponentials and weighted values before the first block.

    A sink is a score from the start. Without one the largest score is the lowest finite number, so that a
    block without a kept key gives zeros instead of NaN.
    """
    B, H, rows = q.shape[:3]
    largest = q.new_full((B, H, rows, 1), lowest, dtype=wide)
    total = q.new_zeros((B, H, rows, 1), dtype=wide)
    if sink is not None:
        largest = largest.copy_(sink.view(-1, 1, 1))
        total = total.fill_(1)
    return largest, total, q.new_zeros((B, H, rows, Dv), dtype=wide)


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return for_operation(attention(setup), setup)


CHUNKED = Backend(
    name="chunked",
    summary="blocks of queries and keys, online softmax: O(L) memory",
    prepare=prepare,
    operations=("attention", "multihead"),
    quadratic_copies=0,
    masks_by_head=True,
)
