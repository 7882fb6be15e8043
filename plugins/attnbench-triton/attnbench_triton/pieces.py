"""Pieces that all kernels share: names, tiles of matrices, spans of blocks, the scores of a block in base 2.

Scores carry the factor log2(e), so that weights are powers of 2, which the hardware computes. A score that
the mask drops is -inf. In all kernels p are positions of queries on the key axis and j are keys. They have
the shapes (M, 1) and (1, N), or (1, M) and (N, 1), and broadcast.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e30)
"""Below any score, but finite: the difference of two -inf would be NaN."""
SIZES = ("B", "H", "Hkv", "group", "Lq", "Lk", "offset", "before", "after", "splits")
"""Arguments whose values no kernel is compiled for: Triton would tell 1 and multiples of 16 from others."""


def named(name: str) -> Callable[[Any], str]:
    """Make the function that Triton asks for a kernel's name, as in ``triton_forward_128x64_8w_3s``.

    The numbers are rows of queries and of keys in a block, warps, and stages of the pipeline.
    """
    return lambda given: "{}_{M}x{N}_{WARPS}w_{STAGES}s".format(name, **given.constants)


@triton.jit
def tanh(x) -> tl.tensor:
    """Compute tanh of float32 within 2e-7 of its value, near 0 too.

    Below 0.6 by Lambert's continued fraction x / (1 + x² / (3 + x² / (5 + …))), where 1 - e^(-2x) would lose
    digits. The interpreter has no functions of libdevice.
    """
    size, square = tl.abs(x), x * x
    far = tl.exp2(size * (-2 * LOG2_E))
    top = tl.where(size < 0.6, size * (945 + square * (105 + square)), 1 - far)
    bottom = tl.where(size < 0.6, 945 + square * (420 + 15 * square), 1 + far)
    return tl.where(x < 0, -top / bottom, top / bottom)


@triton.jit
def tile(
    matrix, stride, start, inside, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Load the rows from ``start`` on, (ROWS, COLS). Features from WIDTH on are 0.

    If MASKED, only the rows ``inside`` (ROWS,) are read, and the others 0. Else all must lie in the matrix.
    """
    features = tl.arange(0, COLS)[None, :]
    # A matrix may have more than 2^31 elements, a tile has not.
    at = matrix + start.to(tl.int64) * stride + tl.arange(0, ROWS)[:, None] * stride + features
    if MASKED:
        return tl.load(at, inside[:, None] & (features < WIDTH), other=0.0)
    if WIDTH < COLS:
        return tl.load(at, features < WIDTH, other=0.0)
    return tl.load(at)


@triton.jit
def spans(first, last, whole_first, whole_last, BLOCK: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Return where blocks with a kept pair begin, their number, and the same of those without dropped pairs.

    Half-open ranges: ``first`` to ``last`` holds all kept pairs, ``whole_first`` to ``whole_last`` no others.
    """
    begin = tl.maximum(first, 0) // BLOCK
    end = tl.maximum(tl.cdiv(tl.maximum(last, 0), BLOCK), begin)
    whole_begin = tl.minimum(tl.cdiv(tl.maximum(whole_first, begin * BLOCK), BLOCK), end)
    whole_end = tl.minimum(tl.maximum(tl.maximum(whole_last, 0) // BLOCK, whole_begin), end)
    return begin * BLOCK, end - begin, whole_begin * BLOCK, whole_end - whole_begin


@triton.jit
def block_start(
    number, begin, whole, wholes, BLOCK: tl.constexpr, MASKED: tl.constexpr
) -> tl.tensor:  # fmt: skip
    """Return where a block begins: of the whole ones, or if MASKED of those before and behind them."""
    if MASKED:
        start = begin + number * BLOCK
        return start + tl.where(start < whole, 0, wholes * BLOCK)
    return whole + number * BLOCK


@triton.jit
def scores_of(
    product, p, j, high, before, after, scale, cap, slope, table, table_at, inside,
    ALIBI: tl.constexpr, MASKED: tl.constexpr,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Compute the scores of a block in base 2, and which pairs are kept.

    A pair is kept if j is below ``high``, and at most ``before`` keys before or ``after`` keys behind p.
    ``scale`` has the factor log2(e), or 1 / cap where there is a cap, which has it then, as slopes have.
    table: an explicit mask at the batch element and head, bytes or numbers; ``table_at``: where its rows
    begin. inside: which rows are there.
    """
    scores = product * scale
    if cap is not None:
        scores = tanh(scores) * cap
    if ALIBI:
        scores -= slope * tl.abs(p - j).to(tl.float32)
    keep = j < high
    if MASKED:
        keep = keep & (p - j <= before) & (j - p <= after)
        if table is not None:
            keep = keep & inside
            added = tl.load(table + table_at + j, keep, other=0)
            if table.dtype.element_ty == tl.uint8:
                keep = keep & (added != 0)
            else:
                scores += added.to(tl.float32) * LOG2_E
                keep = keep & (added.to(tl.float32) > -float("inf"))
        scores = tl.where(keep, scores, -float("inf"))
    return scores, keep
