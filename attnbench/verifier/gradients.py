"""The scale of gradients, whose terms are subtracted, and the factors on their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnbench.inputs.draw import EPS
from attnbench.types.case import Case, Dtype
from attnbench.verifier.errors import Scale, rounding_unit, scale_of

if TYPE_CHECKING:
    from attnbench.types.rule import Array

BEFORE = 0.5
"""The share of the terms before subtraction that counts. A larger one widens the limits of ordinary
gradients (at 1, in bfloat16, from 2.6 % of dq to 4.2 %); a quarter refused one of 3000 right gradients."""

VANISHED = 4.0
"""The share that counts where the subtraction leaves nothing: rounding adds up over D features."""

FEW = 8.0
"""A root mean square over n numbers may be sqrt(1 + FEW / n) times too small. With the factor of 2 in limits,
n normal numbers exceed them by chance in at most 3 of 10⁹ cases, whatever n is: 6 standard deviations for one
number, and fewer for more."""

SUMMED = 2.0
"""The factor for a tensor whose gradient is a sum over rows, in any order: a bias, or a rule's parameter.
Without it two of 574 right gradients of biases in the suite ``edges`` reached 1.1 and 1.6 of the limits."""


def summed(case: Case, part: str, arithmetic: str = "") -> float:
    """Return the factor for the gradient of a tensor: by the number of rows or keys that it sums over."""
    if part.startswith(("rule.", "b_")):
        terms = case.B * case.Lq * (case.Lk if part.startswith("rule.") else 1)
        return SUMMED * max(1.0, rounding_unit(case.dtype, terms, arithmetic=arithmetic))
    rows = case.Lq * (case.B if part.startswith("w_") else case.group)
    return max(1.0, rounding_unit(case.dtype, max(rows, case.Lk), arithmetic=arithmetic))


def few(count: int) -> float:
    """Return by how much a root mean square over ``count`` numbers may be too small."""
    return float(np.sqrt(1 + FEW / max(1, count)))


def gradient_scale(
    exact: Sequence[Array], held: Sequence[Array], dtype: Dtype, *, summed: float = 1.0
) -> Scale:
    """Return the scale of the gradients of one tensor over all draws, for
    :func:`attnbench.verifier.errors.verdict`.

    It serves as the scale of the output and as that of the values. exact: by :func:`plain_gradients` in
    float64. held: the same with ``held``. summed: the factor by :func:`summed`.
    """
    own, before = scale_of(exact), scale_of(held)
    share = VANISHED if own.rms <= EPS[dtype] * before.rms else BEFORE
    factor = few(sum(array.size for array in exact)) * summed
    return Scale(
        rms=factor * max(own.rms, share * before.rms),
        largest=factor * max(own.largest, share * before.largest),
    )
