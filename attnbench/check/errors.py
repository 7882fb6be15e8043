"""Errors of outputs against the oracle, as numbers that can be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.rounding import Stored, widen
from attnbench.types.case import Dtype

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Errors:
    """How far outputs are from the oracle's, over ``count`` elements.

    sum_squares: of the errors. max_abs: the largest. worst: where that is, by the axes of the output.
    got, expected: the two values there. not_finite: what is NaN or infinite, in words; "" for nothing.
    Elements that aren't finite are left out of the sums.
    """

    sum_squares: float
    count: int
    max_abs: float
    worst: tuple[int, ...]
    got: float
    expected: float
    not_finite: str = ""

    @property
    def rms(self) -> float:
        """Root of the mean squared error."""
        return float(np.sqrt(self.sum_squares / self.count)) if self.count else 0.0


def compare(output: Stored, expected: Array, dtype: Dtype) -> Errors:
    """As :func:`compare_wide`, of an output as it is stored."""
    return compare_wide(widen(output, dtype), expected)


def compare_wide(got: Array, expected: Array, axes: Sequence[str] = ()) -> Errors:
    """Compare an output with the oracle's, of the same shape. NaN equals nothing, not even NaN.

    axes: what they are called, where they aren't those of an output.

    Raises:
        ValueError: the shapes differ.
    """
    if got.shape != expected.shape:
        raise ValueError(f"an output of shape {got.shape} can't be compared with {expected.shape}")
    # In the wider of both dtypes, so that a float64 output is compared with longdouble.
    with np.errstate(invalid="ignore", over="ignore"):
        error = got - expected
        flat = error.ravel()
        sum_squares = float(flat @ flat)
        np.abs(error, out=error)
    if np.isfinite(sum_squares):
        # So is everything else, as most of the time: outputs of timed calls are many.
        worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
        return Errors(
            sum_squares, error.size, float(error[worst]), worst, float(got[worst]), float(expected[worst])
        )
    finite = np.isfinite(got) & np.isfinite(expected)
    error = np.where(finite, error, 0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    return Errors(
        sum_squares=float(np.square(error).sum()),
        count=int(finite.sum()),
        max_abs=float(error[worst]),
        worst=worst,
        got=float(got[worst]),
        expected=float(expected[worst]),
        not_finite=_not_finite(got, expected, finite, axes),
    )


def errors_of(differences: Array, expected: Array) -> Errors:
    """Errors that are known by themselves: too small to be found again in a sum with what was expected."""
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.abs(differences))), differences.shape))
    return Errors(
        sum_squares=float(np.square(differences).sum()),
        count=differences.size,
        max_abs=float(abs(differences[worst])),
        worst=worst,
        got=float(expected[worst] + differences[worst]),
        expected=float(expected[worst]),
    )


def pool(errors: Sequence[Errors]) -> Errors:
    """Errors of several outputs as of one; the worst element and the first that isn't finite are kept."""
    worst = max(errors, key=lambda each: each.max_abs)
    return Errors(
        sum_squares=sum(each.sum_squares for each in errors),
        count=sum(each.count for each in errors),
        max_abs=worst.max_abs,
        worst=worst.worst,
        got=worst.got,
        expected=worst.expected,
        not_finite=next((each.not_finite for each in errors if each.not_finite), ""),
    )


def worse(one: Errors, other: Errors) -> Errors:
    """The larger of two outputs' errors on the same elements, in either number."""
    larger = one if one.max_abs >= other.max_abs else other
    return replace(
        larger,
        sum_squares=max(one.sum_squares, other.sum_squares),
        not_finite=one.not_finite or other.not_finite,
    )


def _not_finite(got: Array, expected: Array, finite: NDArray[Any], axes: Sequence[str]) -> str:
    count = int(finite.size - finite.sum())
    if count == 0:
        return ""
    first = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), finite.shape))
    what = "is" if count == 1 else f"and {count - 1} more are"
    values = f"got {float(got[first])}, expected {float(expected[first]):.6g}"
    return f"element {element(first, axes)} {what} not finite: {values}"


def element(index: tuple[int, ...], axes: Sequence[str] = ()) -> str:
    """An index with the names of its axes: (b=0, h=1, i=5, d=3), or (b=0, i=5, e=3) for a layer's output."""
    names = axes or {4: ("b", "h", "i", "d"), 3: ("b", "i", "e")}.get(len(index))
    if names is None:
        return "(" + ", ".join(map(str, index)) + ")"
    return "(" + ", ".join(f"{name}={i}" for name, i in zip(names, index, strict=True)) + ")"
