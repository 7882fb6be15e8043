"""A case's mask with dials: as they stand it is right, turned it is wrong in a known way. NumPy alone."""

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
Keep = NDArray[np.bool_]
Make = Callable[[Case], Added]
Part = Literal["causal", "window", "padding", "explicit"]


@dataclass(frozen=True)
class Dials:
    """What is wrong with a mask.

    other_corner: causal from the other corner. ahead: how many keys causal shows too many. wider: by how much
    the window is too wide. past_only: a window without its later half. longer: by how much padding's lengths
    are too long. one_for_all: padding and explicit mask of the first batch element serve all. left_out: parts
    that are ignored.
    """

    other_corner: bool = False
    ahead: int = 0
    wider: int = 0
    past_only: bool = False
    longer: int = 0
    one_for_all: bool = False
    left_out: tuple[Part, ...] = ()


RIGHTLY = Dials()


def positions(case: Case, other_corner: bool = False) -> NDArray[np.intp]:
    """Each query's position on the key axis, (Lq, 1)."""
    mask, apart = case.mask, case.Lk - case.Lq
    offset = case.query_offset
    if other_corner and mask.causal is not None:
        offset = apart - offset
    return np.arange(case.Lq)[:, None] + offset


def keep(case: Case, dials: Dials = RIGHTLY) -> Keep:
    """Which pairs count but for those that an explicit mask drops, (B, Lq, Lk)."""
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


def explicit(case: Case) -> Added:
    """The explicit mask alone as it is added, (B, Lq, Lk); zeros where there is none."""
    zeros = np.zeros((case.B, case.Lq, case.Lk))
    if case.mask.explicit is None:
        return zeros
    alone, rows = _alone(case), np.arange(case.Lq)
    numbers = added_rows(alone, rows)
    if numbers is not None:
        return zeros + numbers[:, 0]
    kept = keep_rows(alone, rows)
    return zeros if kept is None else np.where(kept[:, 0], zeros, -np.inf)


def added(case: Case, dials: Dials = RIGHTLY) -> Added:
    """What the mask adds to the scores, (B, 1, Lq, Lk), -inf where a pair is dropped."""
    total = np.zeros((case.B, case.Lq, case.Lk)) if "explicit" in dials.left_out else explicit(case)
    if dials.one_for_all:
        total = np.repeat(total[:1], case.B, axis=0)
    return np.where(keep(case, dials), total, -np.inf)[:, None]


def dialled(dials: Dials) -> Make:
    """The function that makes the mask so."""
    return lambda case: added(case, dials)


def _alone(case: Case) -> Case:
    return replace(case, mask=Mask(explicit=case.mask.explicit))
