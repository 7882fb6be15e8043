"""Checking attention weights: their values, the sums of rows, and zeros where the mask drops a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.inputs.draw import EPS
from attnbench.masks import keep_rows
from attnbench.types.case import Case
from attnbench.verifier.errors import (
    MAX_FACTOR,
    Errors,
    Scale,
    compare_wide,
    element,
    longest_sum,
    place_of_largest,
    rounding_unit,
    scale_of,
    verdict,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnbench.types.rule import Array

AXES = ("b", "h", "i", "j")
_UNBOUNDED = Scale(float("inf"), float("inf"))


@dataclass(frozen=True)
class WeightErrors:
    """The errors of weights: of each weight, and of the row sum that is farthest off.

    row: its place, (b, h, i). total, expected: the sum of the row, and the exact one.
    """

    each: Errors
    row: tuple[int, ...]
    total: float
    expected: float

    @property
    def sums(self) -> float:
        """The largest error of a row sum."""
        return abs(self.total - self.expected)


def weight_errors(got: Array, exact: Array) -> WeightErrors:
    """Compare weights (B, H, R, Lk) with the oracle's.

    Raises:
        ValueError: the shapes differ.
    """
    each = compare_wide(got, exact, AXES)
    totals, expected = got.astype(exact.dtype).sum(-1), exact.sum(-1)
    off = np.abs(totals - expected)
    row = place_of_largest(off)
    return WeightErrors(each, row, float(totals[row]), float(expected[row]))


def weights_problem(
    case: Case, got: Array, exact: Array, reference: WeightErrors, rows: NDArray[np.intp]
) -> str:
    """Return what is wrong with weights, in words; "" for nothing.

    Weights that the mask drops must be exactly 0, also in rows that keep no key. Sums of rows must equal the
    oracle's: 1, less with a sink, or 0. Their largest error is at most 4 times that of the plain reference
    plus the unit of rounding. Values are judged as those of outputs.

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
    unit = rounding_unit(case.dtype, longest_sum(case))
    limit = MAX_FACTOR * (reference.sums + unit * EPS[case.dtype])
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
        unit=unit,
    )
    return problem
