"""Masks as arrays: which (query, key) pairs of a case are kept, and what is added to their scores.

Everything is made by rows, so that no caller needs memory for all pairs at once. The random parts of a row do
not depend on which other rows are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnbench.types.case import Case

Rows = NDArray[np.intp]
Keep = NDArray[np.bool_]
Added = NDArray[np.float64]
Part = Literal["lengths", "bool", "float", "empty"]

KEPT_SHARE = 0.8
"""The approximate share of pairs that an explicit mask keeps."""

STEP, REACH = 1 / 16, 4.0
"""Added numbers are multiples of STEP within ±REACH: exact in every dtype, so that all backends add the
same."""

_ROWS_AT_ONCE = 1 << 22
_STREAMS: dict[Part, int] = {"lengths": 1, "bool": 2, "float": 3, "empty": 4}


def keep_rows(case: Case, rows: Rows) -> Keep | None:
    """Return which pairs these query rows keep: (B or 1, 1 or H, R, Lk), True = keep; None if all are kept.

    The second axis is H for a mask that differs by head. This combines causal, window, padding and the
    explicit mask. For Lq=5, Lk=2, causal::

        upper_left   1 0        lower_right   0 0
                     1 1                      0 0
                     1 1                      0 0
                     1 1                      1 0
                     1 1                      1 1
    """
    low, high = kept_ranges(case, rows)
    keys = np.arange(case.Lk)
    keep = ((keys >= low[..., None]) & (keys < high[..., None]))[:, None]
    if case.mask.explicit == "bool":
        keep = keep & _explicit_bool(case, rows)
    elif case.mask.explicit == "float":
        keep = keep & np.isfinite(_explicit_float(case, rows))
    return None if keep.all() else keep


def added_rows(case: Case, rows: Rows) -> Added | None:
    """Return what is added to the scores of these rows, (B, 1 or H, R, Lk); None without a float mask.

    It is -inf wherever any part of the mask drops the pair.
    """
    if case.mask.explicit != "float":
        return None
    added = _explicit_float(case, rows)
    keep = keep_rows(case, rows)
    return added if keep is None else np.where(keep, added, -np.inf)


def key_lengths(case: Case) -> tuple[int, ...] | None:
    """Return how many of the first keys each batch element keeps; None without padding."""
    if case.mask.padding == "seeded":
        drawn = _stream(case, "lengths").integers(1, case.Lk, size=case.B, endpoint=True)
        return tuple(int(length) for length in drawn)
    return case.mask.padding


def mask_heads(case: Case) -> int:
    """Return how many masks there are for the query heads: one for all, or H."""
    return case.H if case.mask.per_head else 1


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
    heads, groups = mask_heads(case), case.Hkv if case.mask.per_head else 1
    kept = np.zeros((case.B, groups, case.Lk), bool)
    if case.mask.explicit is None:
        ranges = kept_ranges(case, np.arange(case.Lq))
        low, high = (np.broadcast_to(each, (case.B, case.Lq)) for each in ranges)
        for b in range(case.B):
            _mark(kept[b, 0], low[b], high[b])
        return int(np.maximum(high - low, 0).sum()), int((high > low).sum()), kept
    pairs = queries = 0
    at_once = max(1, _ROWS_AT_ONCE // (case.B * heads * case.Lk))
    for start in range(0, case.Lq, at_once):
        rows = np.arange(start, min(start + at_once, case.Lq))
        keep = keep_rows(case, rows)
        each = np.broadcast_to(True if keep is None else keep, (case.B, heads, len(rows), case.Lk))
        pairs += int(each.sum())
        queries += int(each.any(-1).sum())
        kept |= each.any(2).reshape(case.B, groups, -1, case.Lk).any(2)
    return pairs, queries, kept


def _mark(kept: Keep, low: Rows, high: Rows) -> None:
    """Set what lies in any of the half-open ranges."""
    steps = np.zeros(len(kept) + 1, np.int64)
    whole = high > low
    np.add.at(steps, low[whole], 1)
    np.add.at(steps, high[whole], -1)
    kept |= np.cumsum(steps[:-1]) > 0


def kept_ranges(case: Case, rows: Rows) -> tuple[Rows, Rows]:
    """Return the half-open range of keys that causal, window and padding keep, each (B or 1, R); may be
    empty."""
    mask = case.mask
    position = rows + case.query_offset
    low = np.zeros_like(position)
    high = np.full_like(position, case.Lk)
    if mask.causal is not None:
        high = np.minimum(high, position + 1)
    if mask.window is not None:
        low = np.maximum(low, position - mask.window + 1)
        high = np.minimum(high, position + mask.window)
    lengths = key_lengths(case)
    if lengths is None:
        return low[None], high[None]
    high = np.minimum(high, np.array(lengths)[:, None])
    return np.broadcast_to(low, high.shape), high


def _explicit_bool(case: Case, rows: Rows) -> Keep:
    keep = np.empty((case.B, mask_heads(case), len(rows), case.Lk), bool)
    for b, h in np.ndindex(*keep.shape[:2]):
        for kept, rng in zip(keep[b, h], _row_streams(case, "bool", b, h, rows), strict=True):
            kept[:] = rng.random(case.Lk) < KEPT_SHARE
        keep[b, h, np.isin(rows, _empty_rows(case, b, h))] = False
    return keep


def _explicit_float(case: Case, rows: Rows) -> Added:
    added = np.empty((case.B, mask_heads(case), len(rows), case.Lk))
    dropped = np.empty(added.shape, bool)
    for b, h in np.ndindex(*added.shape[:2]):
        for at, rng in enumerate(_row_streams(case, "float", b, h, rows)):
            added[b, h, at] = rng.standard_normal(case.Lk)
            dropped[b, h, at] = rng.random(case.Lk) >= KEPT_SHARE
        dropped[b, h, np.isin(rows, _empty_rows(case, b, h))] = True
    np.clip(np.rint(added / STEP) * STEP, -REACH, REACH, out=added)
    added[dropped] = -np.inf
    return added


def _empty_rows(case: Case, b: int, h: int) -> Rows:
    """Return rows of an explicit mask that keep nothing: one in 16, at least one, if there are 4 rows or
    more."""
    count = max(1, case.Lq // 16) if case.Lq >= 4 else 0
    return np.argsort(_stream(case, "empty", b, h).random(case.Lq), kind="stable")[:count]


def _stream(case: Case, part: Part, b: int = 0, h: int = 0) -> np.random.Generator:
    return next(_row_streams(case, part, b, h, np.zeros(1, np.intp)))


def _row_streams(case: Case, part: Part, b: int, h: int, rows: Rows) -> Iterator[np.random.Generator]:
    """Yield random numbers for each row of a part, each at its own place in the counter of Philox."""
    bits = np.random.Philox(key=np.random.SeedSequence(case.seed).generate_state(2, np.uint64))
    start = bits.state
    for row in rows:
        # Moving one generator takes a tenth of the time of making one for each row.
        start["state"]["counter"] = np.array([0, row, b, _STREAMS[part] + (h << 8)], np.uint64)
        bits.state = start
        yield np.random.Generator(bits)
