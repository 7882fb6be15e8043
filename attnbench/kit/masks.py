"""A case's mask in torch, whole or in blocks. ``prepare`` makes it once: it depends on the case alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.masks import added_rows, keep_rows, mask_heads

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.masks import Rows
    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Scoring

_PAIRS_AT_ONCE = 1 << 22


def keep_mask(case: Case, device: str) -> Tensor | None:
    """The (query, key) pairs that count: bool (B or 1, 1 or H, Lq, Lk), True = keep; None where all count."""
    import torch

    def keep(rows: Rows) -> Tensor | None:
        kept = keep_rows(case, rows)
        return None if kept is None else torch.from_numpy(kept)

    return _whole(case, keep, True, torch.bool, device)


def additive_mask(
    case: Case, dtype: torch.dtype, device: str, scoring: Scoring | None = None
) -> Tensor | None:
    """The numbers to add to the scores: (B or 1, H or 1, Lq, Lk), -inf where a pair is dropped.

    None where nothing is added. With ``scoring`` they include the rule's bias.
    """
    whole = _whole(case, lambda rows: mask_rows(case, rows), 0, dtype, device)
    if scoring is None:
        return whole
    return plus_bias(whole, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)


def plus_bias(
    added: Tensor | None, scoring: Scoring, rows: slice, cols: slice, dtype: torch.dtype
) -> Tensor | None:
    """The sum of ``added`` and the rule's bias for some rows and columns; None where there is neither.

    added: (B or 1, 1 or H, rows, cols), in ``dtype``. With a bias the result is (B or 1, H, rows, cols).
    """
    if scoring.bias is None:
        return added
    bias = scoring.bias(rows, cols).to(dtype).unsqueeze(0)
    return bias if added is None else added + bias


def up_to_zero(added: Tensor) -> Tensor:
    """The same less the largest number of each row, which no softmax over these columns shows.

    For operators that add in half precision. In float16 numbers near -34, a usual bias of large distances,
    are 1/32 apart. A sink must be among the columns.
    """
    largest = added.amax(dim=-1, keepdim=True)
    return added - largest.masked_fill(largest.isneginf(), 0)


def mask_rows(case: Case, rows: Rows) -> Tensor | None:
    """The numbers that the mask adds to some query rows: float64 (B or 1, 1 or H, rows, Lk) on the CPU.

    -inf where a pair is dropped; None where nothing is added.
    """
    import torch

    added = added_rows(case, rows)
    if added is not None:
        return torch.from_numpy(added)
    keep = keep_rows(case, rows)
    return None if keep is None else torch.from_numpy(np.where(keep, 0.0, -np.inf))


def empty_rows(case: Case, device: str) -> Tensor | None:
    """Rows that keep no key, whose output is 0: bool (B or 1, 1 or H, Lq, 1); None where all keep one."""
    keep = keep_mask(case, device)
    if keep is None:
        return None
    empty = ~keep.any(dim=-1, keepdim=True)
    return empty if bool(empty.any()) else None


def is_plain_causal(case: Case, scoring: Scoring) -> bool:
    """Tell whether the mask is causal from the upper left, without bias or sink.

    A kernel's own causal mask, such as torch's ``is_causal``, is then enough. Where Lq = Lk, both alignments
    are the same.
    """
    upper_left = case.mask.is_only_causal and case.query_offset == 0
    return upper_left and scoring.bias is None and scoring.sink is None


def softmax_mask(setup: Setup, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """The mask, without bias, and the empty rows for :func:`attnbench.kit.attention.masked_softmax`.

    Shapes: (B or 1, 1 or H, Lq, Lk) in ``dtype``, and (B or 1, 1 or H, Lq, 1) bool; each None where there is
    none. The second axis is H where heads have masks of their own. The mask is 0 in empty rows, since a
    softmax over -inf alone is NaN and so is its gradient; ``masked_softmax`` sets their weights to 0. With a
    sink no row is empty.
    """
    case = setup.case
    mask = additive_mask(case, dtype, case.device)
    empty = None if setup.scoring.sink is not None else empty_rows(case, case.device)
    if mask is None or empty is None:
        return mask, None
    return mask.masked_fill(empty, 0), empty


def _whole(
    case: Case, of_rows: Callable[[Rows], Tensor | None], elsewhere: int, dtype: torch.dtype, device: str
) -> Tensor | None:
    """All rows of a mask, made a few at a time, since float64 takes more memory than what it becomes.

    of_rows: gives some rows on the CPU; None for ``elsewhere`` in each place. None where all are None.
    """
    import torch

    whole: Tensor | None = None
    at_once = max(1, _PAIRS_AT_ONCE // (case.B * mask_heads(case) * case.Lk))
    for start in range(0, case.Lq, at_once):
        rows = np.arange(start, min(start + at_once, case.Lq))
        part = of_rows(rows)
        if part is None:
            continue
        if whole is None:
            whole = torch.full((*part.shape[:2], case.Lq, case.Lk), elsewhere, dtype=dtype)
        whole[:, :, start : start + len(rows)] = part
    return None if whole is None else whole.to(device)


@dataclass(frozen=True)
class Chunk:
    """Some query rows and the key blocks they see, each with the numbers to add to its scores, or None."""

    rows: slice
    blocks: tuple[tuple[slice, Tensor | None], ...]


def chunks_of(setup: Setup, dtype: torch.dtype, shape: tuple[int, int]) -> tuple[Chunk, ...]:
    """All blocks in which a pair is kept.

    shape: rows and columns of a block. Equal blocks share one tensor: those on a causal diagonal are equal,
    as are those of a bias that depends on the distance alone. Together they take O(L) memory.
    """
    case = setup.case
    height, width = shape
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


def _shared(block: Tensor, made: dict[tuple[tuple[int, ...], bytes], Tensor]) -> Tensor:
    block = block.contiguous()
    digest = hashlib.sha256(block.cpu().numpy().tobytes()).digest()
    return made.setdefault((tuple(block.shape), digest), block)
