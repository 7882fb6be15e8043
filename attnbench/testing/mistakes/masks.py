"""Wrong masks: other edges, parts that are ignored, keys that are left out. NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from attnbench.masks import added_rows, keep_rows, key_lengths
from attnbench.types.case import Case
from attnbench.types.mask import mask_of
from attnbench.types.mask_base import MaskWord

Added = NDArray[np.float64]
"""The numbers that a mask adds to the scores, (B, 1 or H, Lq, Lk), -inf where a pair is dropped."""
Make = Callable[[Case], Added]
Keeps = Callable[[MaskWord, Case], NDArray[np.bool_]]
"""Gives the pairs that a word keeps, (B or 1, Lq, Lk) or (Lq, Lk)."""


def positions(case: Case, other_corner: bool = False) -> NDArray[np.intp]:
    """Each query's position on the key axis, (Lq, 1)."""
    offset = case.query_offset
    if other_corner and case.mask.causal is not None:
        offset = case.Lk - case.Lq - offset
    return np.arange(case.Lq)[:, None] + offset


def explicit_mask(case: Case) -> Added:
    """The explicit mask alone as it is added, (B, 1 or H, Lq, Lk); zeros where there is none."""
    zeros = np.zeros((case.B, 1, case.Lq, case.Lk))
    if case.mask.explicit is None:
        return zeros
    mask = mask_of(word for word in case.mask.words if word.part == "explicit")
    alone, rows = replace(case, mask=mask), np.arange(case.Lq)
    numbers = added_rows(alone, rows)
    if numbers is not None:
        return numbers
    kept = keep_rows(alone, rows)
    return zeros if kept is None else np.where(kept, zeros, -np.inf)


def added_mask(
    case: Case, *, other_corner: bool = False, ahead: int = 0, earlier: int = 0, later: int = 0,
    past_only: bool = False, longer: int = 0, one_for_all: bool = False, first_head: bool = False,
    left_out: Sequence[str] = (), structure: Keeps | None = None,
) -> Added:  # fmt: skip
    """The numbers that the mask adds; right unless an argument says how it is wrong.

    other_corner: causal from the other corner. ahead: the number of keys that causal shows too many. earlier,
    later: the keys by which the window reaches too far on either side. past_only: a window without its later
    half. longer: by how much the lengths of padding are too large. one_for_all: padding and explicit mask of
    the first batch element serve all. first_head: the explicit mask of the first head serves all. left_out:
    parts that are ignored. structure: keeps the pairs of words for a structure, each word's own otherwise.
    """
    keys, at = np.arange(case.Lk), positions(case, other_corner)

    def keeps(word: MaskWord) -> NDArray[np.bool_]:
        """The pairs that one word keeps, (B or 1, Lq or 1, Lk)."""
        if word.part == "causal":
            return (keys <= at + ahead)[None]
        if word.part == "window":
            width = case.mask.window or 0
            after = (keys <= at) if past_only else (keys - at < width + later)
            return (after & (at - keys < width + earlier))[None]
        if word.part == "padding":
            lengths = np.array(key_lengths(case))[:, None, None]
            return np.asarray(keys < lengths + longer)
        kept = (structure or right_pairs)(word, case)
        return kept if kept.ndim == 3 else kept[None]

    kept = np.ones((case.B, case.Lq, case.Lk), bool)
    for group in case.mask.groups:
        words = [word for word in group if word.part not in (*left_out, "explicit")]
        if group[0] in words:
            own = reduce(np.logical_or, map(keeps, words))
            kept = kept & (own[:1] if one_for_all else own)
    total = explicit_mask(case)
    if "explicit" in left_out:
        total = np.zeros((case.B, 1, case.Lq, case.Lk))
    if first_head:
        total = total[:, :1]
    if one_for_all:
        total = np.repeat(total[:1], case.B, axis=0)
    return np.where(kept[:, None], total, -np.inf)


def right_pairs(word: MaskWord, case: Case) -> NDArray[np.bool_]:
    """The pairs that a word keeps, (B or 1, Lq, Lk)."""
    return word.keeps(case, np.arange(case.Lq))[:, 0]


def without_keys(dropped: Callable[[Case], NDArray[np.bool_]]) -> Make:
    """The function that makes a mask which drops more pairs, given as (Lk,) or (Lq, Lk)."""
    return lambda case: np.where(dropped(case), -np.inf, added_mask(case))


def whole_blocks(length: int, block: int) -> int:
    """The part of a length that fills whole blocks; all of it where none is filled."""
    return length // block * block or length


def inverted(case: Case) -> Added:
    """Drop the pairs that are kept, and keep the pairs that are dropped."""
    return np.where(np.isfinite(added_mask(case)), -np.inf, 0.0)


def nothing_dropped_by_float(case: Case) -> Added:
    """Read the -inf of a float mask as 0."""
    if case.mask.explicit != "float":
        return added_mask(case)
    numbers = explicit_mask(case)
    return added_mask(case, left_out=("explicit",)) + np.where(np.isfinite(numbers), numbers, 0)


def explicit_transposed(case: Case) -> Added:
    """Read a square explicit mask with queries and keys exchanged."""
    if case.Lq != case.Lk:
        return added_mask(case)
    return added_mask(case, left_out=("explicit",)) + explicit_mask(case).swapaxes(2, 3)
