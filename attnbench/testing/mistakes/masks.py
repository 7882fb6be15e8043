"""Wrong masks: other edges, parts that are ignored, keys that are left out. NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnbench.masks import added_rows, keep_rows, key_lengths
from attnbench.types.case import Case
from attnbench.types.mask import mask_of

Added = NDArray[np.float64]
"""The numbers that a mask adds to the scores, (B, 1 or H, Lq, Lk), -inf where a pair is dropped."""
Make = Callable[[Case], Added]


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
    case: Case, *, other_corner: bool = False, ahead: int = 0, wider: int = 0, past_only: bool = False,
    longer: int = 0, one_for_all: bool = False, first_head: bool = False, left_out: Sequence[str] = (),
) -> Added:  # fmt: skip
    """The numbers that the mask adds; right unless an argument says how it is wrong.

    other_corner: causal from the other corner. ahead: the number of keys that causal shows too many. wider:
    by how much the window is too wide. past_only: a window without its later half. longer: by how much the
    lengths of padding are too large. one_for_all: padding and explicit mask of the first batch element serve
    all. first_head: the explicit mask of the first head serves all. left_out: parts that are ignored:
    causal, window, padding, explicit.
    """
    mask, keys, at = case.mask, np.arange(case.Lk), positions(case, other_corner)
    kept = np.ones((case.B, case.Lq, case.Lk), bool)
    if mask.causal is not None and "causal" not in left_out:
        kept &= keys <= at + ahead
    if mask.window is not None and "window" not in left_out:
        window = mask.window + wider
        kept &= (keys <= at) if past_only else (keys - at < window)
        kept &= at - keys < window
    lengths = key_lengths(case)
    if lengths is not None and "padding" not in left_out:
        if one_for_all:
            lengths = lengths[:1] * case.B
        kept &= keys < (np.array(lengths) + longer)[:, None, None]
    total = explicit_mask(case)
    if "explicit" in left_out:
        total = np.zeros((case.B, 1, case.Lq, case.Lk))
    if first_head:
        total = total[:, :1]
    if one_for_all:
        total = np.repeat(total[:1], case.B, axis=0)
    return np.where(kept[:, None], total, -np.inf)


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
