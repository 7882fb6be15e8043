"""Wrong masks: other edges, parts that are ignored, keys that are left out. NumPy alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnbench.masks import added_rows, keep_rows, key_lengths
from attnbench.types.case import Case
from attnbench.types.mask import Mask

Added = NDArray[np.float64]
"""The numbers that a mask adds to the scores, (B, 1 or H, Lq, Lk), -inf where a pair is dropped."""
Make = Callable[[Case], Added]


@dataclass(frozen=True)
class Dials:
    """The ways in which a mask is wrong.

    other_corner: causal from the other corner. ahead: the number of keys that causal shows too many. wider:
    by how much the window is too wide. past_only: a window without its later half. longer: by how much the
    lengths of padding are too large. one_for_all: padding and explicit mask of the first batch element serve
    all. first_head: the explicit mask of the first head serves all. left_out: parts that are ignored.
    """

    other_corner: bool = False
    ahead: int = 0
    wider: int = 0
    past_only: bool = False
    longer: int = 0
    one_for_all: bool = False
    first_head: bool = False
    left_out: tuple[Literal["causal", "window", "padding", "explicit"], ...] = ()


RIGHTLY = Dials()


def positions(case: Case, other_corner: bool = False) -> NDArray[np.intp]:
    """Each query's position on the key axis, (Lq, 1)."""
    offset = case.query_offset
    if other_corner and case.mask.causal is not None:
        offset = case.Lk - case.Lq - offset
    return np.arange(case.Lq)[:, None] + offset


def _keep(case: Case, dials: Dials) -> NDArray[np.bool_]:
    """The pairs that count but for those that an explicit mask drops, (B, Lq, Lk)."""
    mask, keys, at = case.mask, np.arange(case.Lk), positions(case, dials.other_corner)
    kept = np.ones((case.B, case.Lq, case.Lk), bool)
    if mask.causal is not None and "causal" not in dials.left_out:
        kept &= keys <= at + dials.ahead
    if mask.window is not None and "window" not in dials.left_out:
        window = mask.window + dials.wider
        kept &= (keys <= at) if dials.past_only else (keys - at < window)
        kept &= at - keys < window
    lengths = key_lengths(case)
    if lengths is not None and "padding" not in dials.left_out:
        if dials.one_for_all:
            lengths = lengths[:1] * case.B
        kept &= keys < (np.array(lengths) + dials.longer)[:, None, None]
    return kept


def explicit_mask(case: Case) -> Added:
    """The explicit mask alone as it is added, (B, 1 or H, Lq, Lk); zeros where there is none."""
    zeros = np.zeros((case.B, 1, case.Lq, case.Lk))
    if case.mask.explicit is None:
        return zeros
    mask = Mask(explicit=case.mask.explicit, per_head=case.mask.per_head)
    alone, rows = replace(case, mask=mask), np.arange(case.Lq)
    numbers = added_rows(alone, rows)
    if numbers is not None:
        return numbers
    kept = keep_rows(alone, rows)
    return zeros if kept is None else np.where(kept, zeros, -np.inf)


def added_mask(case: Case, dials: Dials = RIGHTLY) -> Added:
    """The numbers that the mask adds; right unless a dial is turned."""
    total = explicit_mask(case)
    if "explicit" in dials.left_out:
        total = np.zeros((case.B, 1, case.Lq, case.Lk))
    if dials.first_head:
        total = total[:, :1]
    if dials.one_for_all:
        total = np.repeat(total[:1], case.B, axis=0)
    return np.where(_keep(case, dials)[:, None], total, -np.inf)


def dialled(**dials: object) -> Make:
    """The function that makes a mask with these dials turned."""
    turned = Dials(**dials)  # type: ignore[arg-type]
    return lambda case: added_mask(case, turned)


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
    return _without_explicit(case) + np.where(np.isfinite(numbers), numbers, 0)


def explicit_transposed(case: Case) -> Added:
    """Read a square explicit mask with queries and keys exchanged."""
    if case.Lq != case.Lk:
        return added_mask(case)
    return _without_explicit(case) + explicit_mask(case).swapaxes(2, 3)


def _without_explicit(case: Case) -> Added:
    return added_mask(case, Dials(left_out=("explicit",)))
