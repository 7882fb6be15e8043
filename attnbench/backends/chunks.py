"""The blocks of pairs that backends in blocks walk through: which there are, and what is added to each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attnbench.kit.masks import mask_rows, plus_bias
from attnbench.masks import keep_rows
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.case import Case

ELEMENTS = 1 << 18
"""Elements of a block over all batches and heads: a MiB of float32 stays in or near a core's cache."""

LONGEST_COLS, FEWEST_ROWS, MOST_ROWS = 256, 16, 512


@dataclass(frozen=True)
class Chunk:
    """Some query rows and the key blocks they see, each with what is added to its scores, or None."""

    rows: slice
    blocks: tuple[tuple[slice, Tensor | None], ...]


def block_shape(setup: Setup) -> tuple[int, int]:
    """Rows and columns of a block."""
    case = setup.case
    pairs = max(1, ELEMENTS // (case.B * case.H * setup.rule.score_elements(case)))
    cols = min(case.Lk, LONGEST_COLS, max(FEWEST_ROWS, pairs // FEWEST_ROWS))
    rows = min(case.Lq, MOST_ROWS, max(FEWEST_ROWS, pairs // cols))
    if rows == case.Lq:
        cols = min(case.Lk, max(cols, pairs // rows))
    return rows, cols


def chunks_of(setup: Setup, dtype: torch.dtype, shape: tuple[int, int] | None = None) -> tuple[Chunk, ...]:
    """All blocks in which a pair is kept, of so many rows and columns.

    A block that was made before is used again - those on a causal diagonal are all alike, as are those of
    a bias that depends on the distance alone - so that these too take O(L) memory.
    """
    case = setup.case
    height, width = shape or block_shape(setup)
    made: dict[tuple[tuple[int, ...], bytes], Tensor] = {}
    chunks = []
    for top in range(0, case.Lq, height):
        rows = slice(top, min(top + height, case.Lq))
        mask = mask_rows(case, np.arange(rows.start, rows.stop))
        blocks: list[tuple[slice, Tensor | None]] = []
        for left in range(0, case.Lk, width):
            cols = slice(left, min(left + width, case.Lk))
            part = None if mask is None else mask[..., cols]
            if part is not None and bool((part == -float("inf")).all()):
                continue
            if part is not None:
                part = None if bool((part == 0).all()) else part.to(case.device, dtype)
            added = plus_bias(part, setup.scoring, rows, cols, dtype)
            blocks.append((cols, None if added is None else _shared(added, made)))
        chunks.append(Chunk(rows, tuple(blocks)))
    return tuple(chunks)


def pairs_in_blocks(case: Case, shape: tuple[int, int]) -> int:
    """Pairs of one head in blocks of so many rows and columns, but for those that the mask drops whole.

    What an explicit mask drops is scattered, hardly ever a whole block: it is not drawn for this.
    """
    height, width = shape
    ranges = replace(case, mask=replace(case.mask, explicit=None))
    lefts = np.arange(0, case.Lk, width)
    widths = np.diff(lefts, append=case.Lk)
    pairs = 0
    for top in range(0, case.Lq, height):
        rows = np.arange(top, min(top + height, case.Lq))
        keep = keep_rows(ranges, rows)
        seen = np.ones(case.Lk, bool) if keep is None else keep.any((0, 1, 2))
        pairs += len(rows) * int(widths[np.logical_or.reduceat(seen, lefts)].sum())
    return pairs


def _shared(block: Tensor, made: dict[tuple[tuple[int, ...], bytes], Tensor]) -> Tensor:
    block = block.contiguous()
    digest = hashlib.sha256(block.cpu().numpy().tobytes()).digest()
    return made.setdefault((tuple(block.shape), digest), block)
