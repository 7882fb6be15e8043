"""The verdict: whether errors are no larger than the case's dtype explains.

The measure is what a plain computation in that dtype is wrong by (:mod:`attnbench.check.plain`):

    RMS error    <= 2 * reference + 2 * eps * rms(out)
    largest      <= 4 * reference + 4 * eps * max|out|

The second terms let a kernel differ where the reference happens to be exact. They count in units of the
exact output, not of v: an average over many values is far smaller than they are, and in half precision
a kernel that leaves out every fifth key would pass.

A reference that is off by more than rounding explains (a rule whose torch and NumPy forms disagree) counts
no further than rounding could go: its own mistake must not let others through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.check.errors import Errors, element
from attnbench.inputs.rounding import EPS
from attnbench.types.accuracy import Accuracy
from attnbench.types.case import Dtype

if TYPE_CHECKING:
    from attnbench.types.rule import Array

RMS_FACTOR, MAX_FACTOR = 2.0, 4.0

MOST_RMS: dict[Dtype, float] = {"float64": 64, "float32": 64, "bfloat16": 16, "float16": 16}
"""The largest RMS error of the reference that counts, in eps * rms(v); four times that for its largest
error. Over all rules at D = 1 ... 8192 the worst seen are 14 (and 38) in float32, 4.3 (and 12.4) in half."""


@dataclass(frozen=True)
class Scale:
    """How large ``count`` numbers are: their root mean square, and the largest magnitude."""

    rms: float
    largest: float
    count: int = 1


def scale_of(arrays: Sequence[Array]) -> Scale:
    """The scale of several arrays taken together."""
    return together([_scale_of_one(np.ravel(array)) for array in arrays])


def together(scales: Sequence[Scale]) -> Scale:
    """The scale of all numbers that several scales are of."""
    count = sum(scale.count for scale in scales)
    squares = sum(scale.count * scale.rms**2 for scale in scales)
    return Scale(float(np.sqrt(squares / max(1, count))), max(scale.largest for scale in scales), count)


def _scale_of_one(flat: Array) -> Scale:
    rms = float(np.sqrt(np.dot(flat, flat) / max(1, len(flat))))
    return Scale(rms, float(np.max(np.abs(flat), initial=0.0)), len(flat))


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
) -> tuple[Accuracy, str]:
    """The check in numbers, and why it failed in words ("" where it didn't).

    errors, reference: of the backend and the plain computation, pooled over the same draws.
    output, values: of the exact output, and of v (or of the source of values). rows: how many query rows
    were compared, of ``rows_of``. draws: how many outputs. axes: their names, where these are no outputs.
    """
    rms_unit, max_unit = EPS[dtype] * output.rms, EPS[dtype] * output.largest
    most_rms, most_max = _most_counted(values, dtype)
    counted_rms, counted_max = min(reference.rms, most_rms), min(reference.max_abs, most_max)
    accuracy = Accuracy(
        rms_error=errors.rms,
        max_error=errors.max_abs,
        reference_rms=reference.rms,
        reference_max=reference.max_abs,
        rms_limit=RMS_FACTOR * (counted_rms + rms_unit),
        max_limit=MAX_FACTOR * (counted_max + max_unit),
        rows=rows,
        rows_of=rows_of,
        draws=draws,
    )
    problem = _problem(errors, accuracy, axes)
    if problem and reference_off(reference, values, dtype):
        problem += (
            f". The plain reference is itself off by {reference.rms:.3g} RMS, more than {dtype} explains: "
            "do the rule's torch and NumPy forms agree?"
        )
    return accuracy, problem


def reference_off(reference: Errors, values: Scale, dtype: Dtype) -> bool:
    """Whether the plain computation is farther off than its dtype explains: the rule's forms disagree."""
    rms, largest = _most_counted(values, dtype)
    return reference.rms > rms or reference.max_abs > largest or bool(reference.not_finite)


def _most_counted(values: Scale, dtype: Dtype) -> tuple[float, float]:
    unit = MOST_RMS[dtype] * EPS[dtype]
    return unit * values.rms, 4 * unit * values.largest


def _problem(errors: Errors, accuracy: Accuracy, axes: Sequence[str]) -> str:
    among = "" if accuracy.rows == accuracy.rows_of else f" (i counts the {accuracy.rows} rows compared)"
    if errors.not_finite:
        return errors.not_finite + among
    too_large = []
    # Written so that a limit of NaN refuses.
    if not errors.rms <= accuracy.rms_limit:
        too_large.append(f"RMS error {errors.rms:.3g} is above {accuracy.rms_limit:.3g}")
    if not errors.max_abs <= accuracy.max_limit:
        too_large.append(f"largest error {errors.max_abs:.3g} is above {accuracy.max_limit:.3g}")
    if not too_large:
        return ""
    worst = f"got {errors.got:.6g}, expected {errors.expected:.6g}"
    return f"{', '.join(too_large)}; worst at {element(errors.worst, axes)}{among}: {worst}"
