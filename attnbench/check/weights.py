"""Attention weights held against the oracle's: their values, their sums, and 0 where a mask drops a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.check.errors import MAX_FACTOR, Errors, Scale, compare_wide, element, scale_of, verdict
from attnbench.inputs.draw import EPS
from attnbench.masks import keep_rows
from attnbench.types.case import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnbench.types.rule import Array

AXES = ("b", "h", "i", "j")
_UNBOUNDED = Scale(float("inf"), float("inf"))


@dataclass(frozen=True)
class WeightErrors:
    """By how much weights are off: each, and the sum of a row that is farthest off.

    row: where that is, (b, h, i). total, expected: what the row sums to, and what it should.
    """

    each: Errors
    row: tuple[int, ...]
    total: float
    expected: float

    @property
    def sums(self) -> float:
        """The largest error of a sum."""
        return abs(self.total - self.expected)


def weight_errors(got: Array, exact: Array) -> WeightErrors:
    """Errors of weights (B, H, R, Lk) against the oracle's.

    Raises:
        ValueError: the shapes differ.
    """
    each = compare_wide(got, exact, AXES)
    totals, expected = got.astype(exact.dtype).sum(-1), exact.sum(-1)
    off = np.abs(totals - expected)
    row = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    return WeightErrors(each, row, float(totals[row]), float(expected[row]))


def weights_problem(
    case: Case, got: Array, exact: Array, reference: WeightErrors, rows: NDArray[np.intp]
) -> str:
    """What is wrong with weights, in words; "" for nothing.

    What the mask drops is exactly 0, so rows that keep no key are. Sums of rows are the oracle's - 1, or with
    a sink what it leaves, or 0 - as far as the dtype says: their largest error is at most 4 times that of
    the plain reference's and 4 eps. Values have the verdict that outputs have.

    got, exact: (B, H, R, Lk) of the query rows ``rows``. reference: of the plain reference's weights.
    """
    found = weight_errors(got, exact)
    if found.each.not_finite:
        return found.each.not_finite
    keep = keep_rows(case, rows)
    if keep is not None:
        leaked = np.argwhere(~np.broadcast_to(keep, got.shape) & (got != 0))
        if len(leaked):
            at = tuple(int(i) for i in leaked[0])
            more = "" if len(leaked) == 1 else f", as {len(leaked) - 1} more"
            value = f"{element(at, AXES)} is {float(got[at]):.3g}"
            return f"{value} where the mask drops the pair{more}: 0 is needed"
    limit = MAX_FACTOR * (reference.sums + EPS[case.dtype])
    if not found.sums <= limit:
        where = element(found.row, AXES[:3])
        return f"row {where} sums to {found.total:.9g}, expected {found.expected:.9g}"
    _, problem = verdict(
        found.each,
        reference.each,
        output=scale_of([exact]),
        values=_UNBOUNDED,
        dtype=case.dtype,
        rows=len(rows),
        rows_of=case.Lq,
        draws=1,
        axes=AXES,
    )
    return problem
