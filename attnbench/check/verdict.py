"""The verdict: whether errors are no larger than the case's dtype explains.

The measure is what a plain computation in that dtype is wrong by (:mod:`attnbench.check.plain`):

    RMS error    <= 2 * reference + 2 * eps * rms(v)
    largest      <= 4 * reference + 4 * eps * max|v|

The second terms let a kernel differ where the reference happens to be exact.
"""

from __future__ import annotations

from attnbench.check.errors import Errors, element
from attnbench.inputs.rounding import EPS
from attnbench.types.case import Dtype
from attnbench.types.record import Accuracy

RMS_FACTOR, MAX_FACTOR = 2.0, 4.0


def verdict(
    errors: Errors,
    reference: Errors,
    *,
    values_rms: float,
    values_max: float,
    dtype: Dtype,
    rows: int,
    rows_of: int,
    draws: int,
) -> tuple[Accuracy, str]:
    """The check in numbers, and why it failed in words ("" where it didn't).

    errors, reference: of the backend and the plain computation, pooled over the same draws.
    values_rms, values_max: of v (or of the source of values). rows: how many query rows were
    compared, of ``rows_of``. draws: how many outputs.
    """
    eps = EPS[dtype]
    accuracy = Accuracy(
        rms_error=errors.rms,
        max_error=errors.max_abs,
        reference_rms=reference.rms,
        reference_max=reference.max_abs,
        rms_limit=RMS_FACTOR * (reference.rms + eps * values_rms),
        max_limit=MAX_FACTOR * (reference.max_abs + eps * values_max),
        rows=rows,
        rows_of=rows_of,
        draws=draws,
    )
    return accuracy, _problem(errors, accuracy)


def _problem(errors: Errors, accuracy: Accuracy) -> str:
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
    return f"{', '.join(too_large)}; worst at {element(errors.worst)}{among}: {worst}"
