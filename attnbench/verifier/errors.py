"""Errors of outputs against exact answers, and the limits that the dtype of the case allows.

Where an arithmetic is coarser than the dtype, limits follow from the oracle's answer to rounded inputs.
Within them there may still be wrong maths with small effects. Errors of rounding depend on the last bits of
the operands. They are others, at random, if every number of the inputs changes by a few gaps of the
arithmetic. Errors of wrong maths (a lost key, a scale that is off, a row that is too large) are smooth
functions of the inputs and stay as they are. So the same backend is called on inputs and on nudged ones, and
both errors are correlated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import EPS, Stored, store, widen
from attnbench.types.arithmetic import ASSUMED, EXP_ERROR, SUM_ERROR, UNIT
from attnbench.types.case import Case, Dtype
from attnbench.types.record import Accuracy

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Errors:
    """Errors of outputs against the oracle, over ``count`` elements.

    sum_squares: of all errors. max_abs: the largest error. worst: its place, by the axes of the output. got,
    expected: the two values there. not_finite: the NaN or infinity that must not be there, in words; "" for
    none. Elements that are not finite are left out of the sums.
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
        """The root mean square of the errors."""
        return float(np.sqrt(self.sum_squares / self.count)) if self.count else 0.0


NO_ERRORS = Errors(0.0, 0, 0.0, (), 0.0, 0.0)
"""The errors of an output without elements, as of a sequence without queries."""


def compare(output: Stored, expected: Array, dtype: Dtype) -> Errors:
    """Compare an output as it is stored; see :func:`compare_wide`."""
    return compare_wide(widen(output, dtype), expected)


def compare_wide(got: Array, expected: Array, axes: Sequence[str] = ()) -> Errors:
    """Compare an output with the oracle's, of the same shape. NaN equals nothing, not even NaN; -inf equals
    -inf, which the logarithm of an empty sum is.

    axes: the names of the axes, where they are known.

    Raises:
        ValueError: the shapes differ.
    """
    if got.shape != expected.shape:
        raise ValueError(f"an output of shape {got.shape} can't be compared with one of {expected.shape}")
    if got.size == 0:
        return NO_ERRORS
    count, not_finite = got.size, ""
    # In the wider of both dtypes, so that a float64 output is compared with longdouble.
    with np.errstate(invalid="ignore", over="ignore"):
        error = got - expected
        flat = error.ravel()
        sum_squares = float(flat @ flat)
        np.abs(error, out=error)
    # Where the sum is finite, all elements are. Looking at each would be slow: timed calls give many outputs.
    if not np.isfinite(sum_squares):
        finite = (np.isfinite(got) & np.isfinite(expected)) | (np.isneginf(got) & np.isneginf(expected))
        error = np.where(finite & np.isfinite(expected), error, 0)
        sum_squares, count = float(np.square(error).sum()), int(finite.sum())
        not_finite = _not_finite(got, expected, finite, axes)
    worst = place_of_largest(error)
    return Errors(
        sum_squares, count, float(error[worst]), worst, float(got[worst]), float(expected[worst]), not_finite
    )


def place_of_largest(array: NDArray[Any]) -> tuple[int, ...]:
    """Return the place of the largest number, the first of several; NaN counts as larger than all."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(array)), array.shape))


def errors_of(differences: Array, expected: Array) -> Errors:
    """Make errors of known differences, which are too small to survive being added to what was expected."""
    if differences.size == 0:
        return NO_ERRORS
    worst = place_of_largest(np.abs(differences))
    return Errors(
        sum_squares=float(np.square(differences).sum()),
        count=differences.size,
        max_abs=float(abs(differences[worst])),
        worst=worst,
        got=float(expected[worst] + differences[worst]),
        expected=float(expected[worst]),
    )


def pool(errors: Sequence[Errors]) -> Errors:
    """Pool the errors of several outputs; keep the worst element and the first that is not finite."""
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


def _not_finite(got: Array, expected: Array, finite: NDArray[Any], axes: Sequence[str]) -> str:
    count = int(finite.size - finite.sum())
    if count == 0:
        return ""
    first = place_of_largest(~finite)
    what = "is" if count == 1 else f"and {count - 1} more are"
    values = f"got {float(got[first])}, expected {float(expected[first]):.6g}"
    return f"element {element(first, axes)} {what} not finite: {values}"


def element(index: tuple[int, ...], axes: Sequence[str] = ()) -> str:
    """Write an index, with the names of its axes where these are known: (b=0, h=1, i=5, e=3)."""
    words = map(str, index) if not axes else (f"{name}={i}" for name, i in zip(axes, index, strict=True))
    return f"({', '.join(words)})"


RMS_FACTOR, MAX_FACTOR = 2.0, 4.0

MOST_RMS: dict[Dtype, float] = {"float64": 64, "float32": 64, "bfloat16": 16, "float16": 16}
"""The largest RMS error of the plain reference that counts, in eps * rms(v); four times that for its
largest error. Over all rules at D = 1 ... 8192 the worst seen are 14 (and 38) in float32, 4.3 (and 12.4)
in half precision."""


MOST_ROUNDED = 16.0
"""The same of a coarser arithmetic."""

ASSUMED_RMS: dict[Dtype, float] = {"float64": 4, "float32": 4, "bfloat16": 1, "float16": 1}
"""The RMS error in place of a reference's if an operation has no reference, in eps * rms(output)."""


STORED = 0.5
"""Scores, weights and output are off by 0.21 gaps each where they are stored in a coarser arithmetic, by 0.36
together. A smaller unit tells arithmetics apart: bfloat16 is not within the limits of TF32."""


def longest_sum(case: Case) -> int:
    """Return the number of terms of the longest sum: over keys, features of a head, or those of a layer."""
    return max(case.Lk, case.D, case.layer.E if case.layer else 0)


def gap_of(dtype: Dtype, arithmetic: str) -> float:
    """Return the gap between 1 and the next number, of a dtype or of a coarser arithmetic ("" for none)."""
    return max(EPS[dtype], UNIT.get(arithmetic, 0.0))


def rounding_unit(dtype: Dtype, terms: int, largest_score: float = 0.0, arithmetic: str = "") -> float:
    """Return the RMS error, in gaps * rms(output), that limits allow whatever the plain reference's is.

    Three roundings differ between right computations: a sum of ``terms`` numbers in another order, another
    exp, and a log-sum-exp as large as the largest score, whose rounding is a relative error of the output.
    All are made in float32 where the dtype or the arithmetic is narrower. This leaves the rounding of the
    output, 1; in an arithmetic that of weights and of what is stored, ``STORED``.
    """
    gap = gap_of(dtype, arithmetic)
    wide = min(gap, EPS["float32"]) / gap
    return max(
        STORED if arithmetic else 1.0, wide * (EXP_ERROR + SUM_ERROR * float(np.sqrt(terms)) + largest_score)
    )


def assumed_errors(exact: Array, dtype: Dtype) -> Errors:
    """Return errors in place of a plain computation's if there is none; the largest is four times the RMS."""
    rms = ASSUMED_RMS[dtype] * EPS[dtype] * scale_of([exact]).rms
    origin = (0,) * exact.ndim
    return Errors(rms**2 * exact.size, exact.size, 4 * rms, origin, 0.0, 0.0)


@dataclass(frozen=True)
class Scale:
    """The size of ``count`` numbers: their root mean square, and the largest magnitude."""

    rms: float
    largest: float
    count: int = 1


def scale_of(arrays: Sequence[Array]) -> Scale:
    """Return the scale of several arrays together."""
    return together([_scale_of_one(np.ravel(array)) for array in arrays])


def together(scales: Sequence[Scale]) -> Scale:
    """Combine scales into that of all their numbers."""
    count = sum(scale.count for scale in scales)
    squares = sum(scale.count * scale.rms**2 for scale in scales)
    return Scale(float(np.sqrt(squares / max(1, count))), max(scale.largest for scale in scales), count)


def _scale_of_one(flat: Array) -> Scale:
    rms = float(np.sqrt(np.dot(flat, flat) / max(1, len(flat))))
    # Without an array of magnitudes, which would be as large as the inputs.
    ends = np.max(flat, initial=0.0), -np.min(flat, initial=0.0)
    return Scale(rms, float(np.max(ends)), len(flat))


def verdict(
    errors: Errors,
    reference: Errors,
    *,
    output: Scale,
    values: Scale,
    dtype: Dtype,
    rows: int,
    rows_of: int,
    draws: int,
    axes: Sequence[str] = (),
    few: float = 1.0,
    unit: float = 1.0,
    arithmetic: str = "",
) -> tuple[Accuracy, str]:
    """Return the check in numbers, and why it failed in words ("" for no failure).

    errors, reference: of the backend and of the plain reference, pooled over the same draws. output, values:
    the scale of the exact output, and of v or the source of values. rows: query rows that were compared, of
    ``rows_of``. draws: the number of outputs. axes: their names, where they are known. few: a factor
    on the reference's RMS error, where it is judged by few numbers. unit: :func:`rounding_unit`. arithmetic:
    coarser than the dtype, to whose rounding the backend is held instead; "" for none. The reference is then
    the exact answer to rounded inputs.
    """
    gap = unit * gap_of(dtype, arithmetic)
    rms_unit, max_unit = gap * output.rms, gap * output.largest
    most_rms, most_max = _most_counted(values, dtype, arithmetic)
    counted_rms, counted_max = min(reference.rms, most_rms), min(reference.max_abs, most_max)
    accuracy = Accuracy(
        rms_error=errors.rms,
        max_error=errors.max_abs,
        reference_rms=reference.rms,
        reference_max=reference.max_abs,
        rms_limit=RMS_FACTOR * (few * counted_rms + rms_unit),
        max_limit=MAX_FACTOR * (counted_max + max_unit),
        rows=rows,
        rows_of=rows_of,
        draws=draws,
    )
    problem = _problem(errors, accuracy, axes)
    if problem and not arithmetic and reference_off(reference, values, dtype):
        problem += (
            f". The plain reference is itself off by {reference.rms:.3g} RMS, more than {dtype} explains: "
            "do the rule's torch and NumPy forms agree?"
        )
    return accuracy, problem


def reference_off(reference: Errors, values: Scale, dtype: Dtype) -> bool:
    """Return whether the plain reference's error exceeds what its dtype explains: the rule's forms then
    disagree."""
    rms, largest = _most_counted(values, dtype)
    return reference.rms > rms or reference.max_abs > largest or bool(reference.not_finite)


def _most_counted(values: Scale, dtype: Dtype, arithmetic: str = "") -> tuple[float, float]:
    unit = (MOST_ROUNDED if arithmetic else MOST_RMS[dtype]) * gap_of(dtype, arithmetic)
    return unit * values.rms, 4 * unit * values.largest


def _problem(errors: Errors, accuracy: Accuracy, axes: Sequence[str]) -> str:
    among = "" if accuracy.rows == accuracy.rows_of else f" (i counts the {accuracy.rows} rows compared)"
    if errors.not_finite:
        return errors.not_finite + among
    too_large = []
    # Written so that a limit of NaN refuses the output.
    if not errors.rms <= accuracy.rms_limit:
        too_large.append(f"RMS error {errors.rms:.3g} is above {accuracy.rms_limit:.3g}")
    if not errors.max_abs <= accuracy.max_limit:
        too_large.append(f"largest error {errors.max_abs:.3g} is above {accuracy.max_limit:.3g}")
    if not too_large:
        return ""
    got, expected = told_apart(errors.got, errors.expected)
    worst = f"got {got}, expected {expected}"
    return f"{', '.join(too_large)}; worst at {element(errors.worst, axes)}{among}: {worst}"


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Write two numbers with six digits, or with as many as show that they differ."""
    for digits in range(6, 18):
        words = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if words[0] != words[1]:
            break
    return words


def rounded(values: Array, arithmetic: str) -> Array:
    """Return numbers as an arithmetic holds them. int8: whole steps, 127 to the largest number of a row."""
    if arithmetic == "int8":
        step = np.abs(values).max(-1, keepdims=True) / 127
        steps: Array = np.rint(values / np.where(step == 0, 1, step)) * step
        return steps
    fraction, exponent = np.frexp(values)
    # Fractions are 1/2 to 1, so that a gap is half of that between 1 and the next number.
    gap = UNIT[arithmetic] / 2
    held: Array = np.rint(fraction / gap) * gap * np.exp2(exponent)
    return held


NUDGE = 2 * max(UNIT[one] for one in ASSUMED)
"""The largest relative change of a number: two gaps of the coarsest arithmetic that is assumed."""

MOST_ALIKE = 0.5
"""The largest correlation of errors that count as rounding. Measured: rounding of operands below 0.3, wrong
maths above 0.99 (tests/maths/test_coarse_rounding.py)."""

FEWEST_OFF = 0.25
"""The least share of elements that are off by more than the dtype allows: rounding spares few."""


def nudged(stored: Stored, dtype: Dtype, rng: np.random.Generator) -> Stored:
    """Return floating numbers with random relative changes of at most ``NUDGE``."""
    wide = widen(stored, dtype)
    return store(wide * (1 + NUDGE * rng.uniform(-1, 1, wide.shape)), dtype)


@dataclass
class Scatter:
    """Sums over errors before and after a nudge: products, squares, elements, and those that are off."""

    product: float = 0.0
    before: float = 0.0
    after: float = 0.0
    count: int = 0
    off: int = 0

    def add(self, before: Array, after: Array, limit: float) -> None:
        """Add the errors of one output before and after. limit: what the dtype allows as RMS error."""
        self.product += float(np.vdot(before, after))
        self.before += float(np.vdot(before, before))
        self.after += float(np.vdot(after, after))
        self.count += before.size
        self.off += int(np.count_nonzero(np.abs(before) > limit))

    @property
    def alike(self) -> float:
        """The correlation of the errors; 1 if there are none on one side."""
        size = float(np.sqrt(self.before * self.after))
        return self.product / size if size else 1.0

    @property
    def is_rounding(self) -> bool:
        """True if many elements are off, and in another way after the nudge."""
        return self.alike <= MOST_ALIKE and self.off >= FEWEST_OFF * self.count
