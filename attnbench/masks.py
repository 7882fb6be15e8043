"""Masks as arrays: which (query, key) pairs of a case are kept, and what is added to their scores.

Everything is made by rows, so that no caller needs memory for all pairs at once. The random parts of a row do
not depend on which other rows are asked for.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnbench.types.case import Case
from attnbench.types.mask_base import within
from attnbench.types.mask_words import KEPT_SHARE as KEPT_SHARE
from attnbench.types.mask_words import REACH as REACH

Rows = NDArray[np.intp]
Keep = NDArray[np.bool_]
Added = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)

_ROWS_AT_ONCE = 1 << 22


def keep_rows(case: Case, rows: Rows) -> Keep | None:
    """Return which pairs these query rows keep: (B or 1, 1 or H, R, Lk), True = keep; None if all are kept.

    The second axis is H for a mask that differs by head. For Lq=5, Lk=2, causal::

        upper_left   1 0        lower_right   0 0
                     1 1                      0 0
                     1 1                      0 0
                     1 1                      1 0
                     1 1                      1 1
    """
    low, high = kept_ranges(case, rows)
    keep = within(np.arange(case.Lk), low, high)
    for group in case.mask.groups:
        if len(group) > 1 or group[0].form == "table":
            keep = keep & reduce(np.logical_or, (word.keeps(case, rows) for word in group))
    return None if keep.all() else keep


def added_rows(case: Case, rows: Rows) -> Added | None:
    """Return what is added to the scores of these rows, (B, 1 or H, R, Lk); None where nothing is.

    It is -inf wherever any part of the mask drops the pair.
    """
    if not case.mask.adds:
        return None
    added = reduce(np.add, (word.numbers(case, rows) for word in case.mask.words if word.adds))
    keep = keep_rows(case, rows)
    return added if keep is None else np.where(keep, added, -np.inf)


def of_problem(rows: NDArray[Number], b: int, h: int) -> NDArray[Number]:
    """Return what :func:`keep_rows` or :func:`added_rows` gave for one batch element and head, (R, Lk)."""
    one: NDArray[Number] = rows[min(b, rows.shape[0] - 1), min(h, rows.shape[1] - 1)]
    return one


def key_lengths(case: Case) -> tuple[int, ...] | None:
    """Return how many of the first keys each batch element keeps; None without padding."""
    return case.mask.lengths(case)


def mask_heads(case: Case) -> int:
    """Return how many masks there are for the query heads: one for all, or H."""
    return 1 if case.mask.ignores("h") else case.H


def kept_pairs(case: Case) -> int:
    """Count the kept (query, key) pairs over all batch elements and all H query heads."""
    return _kept(case)[0] * case.H // mask_heads(case)


def kept_rows(case: Case) -> tuple[int, int]:
    """Count queries that keep a key, and keys that some query keeps, over all batch elements.

    A kernel need not read the others. With 5 queries and 2 keys, causal and lower right, it returns 2 and 2.
    Where heads have masks of their own, these are means over the heads.
    """
    _, queries, kept = _kept(case)
    return queries // mask_heads(case), int(kept.sum()) // kept.shape[1]


def kept_keys(case: Case) -> Keep:
    """Return which keys some query keeps: (B, 1, Lk), or (B, Hkv, Lk) where heads have masks of their own."""
    return _kept(case)[2]


@lru_cache(maxsize=2)
def _kept(case: Case) -> tuple[int, int, Keep]:
    """Count kept pairs and queries that keep a key, over all masks; return the keys as :func:`kept_keys`."""
    heads, groups = mask_heads(case), 1 if case.mask.ignores("h") else case.Hkv
    kept = np.zeros((case.B, groups, case.Lk), bool)
    if case.mask.is_range:
        ranges = kept_ranges(case, np.arange(case.Lq))
        low, high = (np.broadcast_to(each, (case.B, case.Lq)) for each in ranges)
        for b in range(case.B):
            _mark(kept[b, 0], low[b], high[b])
        return int(np.maximum(high - low, 0).sum()), int((high > low).sum()), kept
    pairs = queries = 0
    at_once = max(1, _ROWS_AT_ONCE // max(1, case.B * heads * case.Lk))
    for start in range(0, case.Lq, at_once):
        rows = np.arange(start, min(start + at_once, case.Lq))
        keep = keep_rows(case, rows)
        each = np.broadcast_to(True if keep is None else keep, (case.B, heads, len(rows), case.Lk))
        pairs += int(each.sum())
        queries += int(each.any(-1).sum())
        kept |= each.any(2).reshape(case.B, groups, heads // groups, case.Lk).any(2)
    return pairs, queries, kept


def _mark(kept: Keep, low: Rows, high: Rows) -> None:
    """Set what lies in any of the half-open ranges."""
    steps = np.zeros(len(kept) + 1, np.int64)
    whole = high > low
    np.add.at(steps, low[whole], 1)
    np.add.at(steps, high[whole], -1)
    kept |= np.cumsum(steps[:-1]) > 0


def kept_ranges(case: Case, rows: Rows) -> tuple[Rows, Rows]:
    """Return a half-open range of keys outside of which all are dropped, each (B or 1, R); may be empty.

    A query keeps all keys in its range where ``case.mask.is_range``.
    """
    low, high = np.zeros((1, len(rows)), np.intp), np.full((1, len(rows)), case.Lk)
    for group in case.mask.groups:
        bounds = [word.bounds(case, rows) for word in group]
        low = np.maximum(low, reduce(np.minimum, (its_low for its_low, _ in bounds)))
        high = np.minimum(high, reduce(np.maximum, (its_high for _, its_high in bounds)))
    low, high = np.broadcast_arrays(low, high)
    return low, high
