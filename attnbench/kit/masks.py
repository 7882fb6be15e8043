"""A case's mask in torch: made once, in ``prepare``, because it depends on the case alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from attnbench.masks import added_rows, keep_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.masks import Rows
    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Scoring

_PAIRS_AT_ONCE = 1 << 22


def keep_mask(case: Case, device: str) -> Tensor | None:
    """Which (query, key) pairs count: bool (B or 1, 1, Lq, Lk), True = keep; None where all do."""
    import torch

    whole: Tensor | None = None
    for rows in _row_chunks(case):
        keep = keep_rows(case, rows)
        if keep is None:
            continue
        if whole is None:
            whole = torch.ones(keep.shape[0], 1, case.Lq, case.Lk, dtype=torch.bool)
        whole[:, :, rows[0] : rows[-1] + 1] = torch.from_numpy(keep)
    return None if whole is None else whole.to(device)


def additive_mask(
    case: Case, dtype: torch.dtype, device: str, scoring: Scoring | None = None
) -> Tensor | None:
    """What is added to the scores: (B or 1, H or 1, Lq, Lk), -inf where a pair is dropped; None for nothing.

    With ``scoring`` the rule's bias is in it.
    """
    import torch

    rows, cols = slice(0, case.Lq), slice(0, case.Lk)
    whole: Tensor | None = None
    for chunk in _row_chunks(case):
        added = mask_rows(case, chunk)
        if added is None:
            continue
        if whole is None:
            whole = torch.zeros(added.shape[0], 1, case.Lq, case.Lk, dtype=dtype)
        whole[:, :, chunk[0] : chunk[-1] + 1] = added
    whole = None if whole is None else whole.to(device)
    return whole if scoring is None else plus_bias(whole, scoring, rows, cols, dtype)


def plus_bias(
    added: Tensor | None, scoring: Scoring, rows: slice, cols: slice, dtype: torch.dtype
) -> Tensor | None:
    """What is added for some rows and columns and the rule's bias for them; None where neither is.

    added: (B or 1, 1, rows, cols), in ``dtype``. With a bias the result is (B or 1, H, rows, cols).
    """
    if scoring.bias is None:
        return added
    bias = scoring.bias(rows, cols).to(dtype).unsqueeze(0)
    return bias if added is None else added + bias


def mask_rows(case: Case, rows: Rows) -> Tensor | None:
    """What the mask adds to the scores of some query rows: float64 (B or 1, 1, rows, Lk) on the CPU.

    -inf where a pair is dropped; None where nothing is added.
    """
    import torch

    added = added_rows(case, rows)
    if added is not None:
        return torch.from_numpy(added)
    keep = keep_rows(case, rows)
    return None if keep is None else torch.from_numpy(np.where(keep, 0.0, -np.inf))


def empty_rows(case: Case, device: str) -> Tensor | None:
    """Rows that keep no key, whose output is 0: bool (B or 1, 1, Lq, 1); None where every row keeps one."""
    keep = keep_mask(case, device)
    if keep is None:
        return None
    empty = ~keep.any(dim=-1, keepdim=True)
    return empty if bool(empty.any()) else None


def is_plain_causal(case: Case, scoring: Scoring) -> bool:
    """Whether the mask is causal from the upper left, with nothing else added: neither bias nor sink.

    A kernel's own causal mask, ``is_causal`` of torch's, is then all that it needs. Of a square either
    alignment is that.
    """
    mask = case.mask
    upper_left = mask.is_only_causal and (mask.causal == "upper_left" or case.Lq == case.Lk)
    return upper_left and scoring.bias is None and scoring.sink is None


def softmax_mask(setup: Setup, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """What :func:`attnbench.kit.attention.masked_softmax` takes: the mask, without bias, and the empty rows.

    Of shapes (B or 1, 1, Lq, Lk), in ``dtype``, and (B or 1, 1, Lq, 1), bool; each None where there is none.
    The mask is 0 in rows whose weights are set to 0 anyway: a softmax over nothing but -inf is NaN, and so
    would be its gradient. With a sink no row is empty.
    """
    case = setup.case
    mask = additive_mask(case, dtype, case.device)
    empty = None if setup.scoring.sink is not None else empty_rows(case, case.device)
    if mask is None or empty is None:
        return mask, None
    return mask.masked_fill(empty, 0), empty


def _row_chunks(case: Case) -> Iterator[Rows]:
    """All query rows, a few at a time: a mask of float64 pairs is larger than the mask it becomes."""
    at_once = max(1, _PAIRS_AT_ONCE // (case.B * case.Lk))
    for start in range(0, case.Lq, at_once):
        yield np.arange(start, min(start + at_once, case.Lq))
