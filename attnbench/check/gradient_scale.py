"""In what units a gradient's errors count.

For an output they are those of the exact output (:mod:`attnbench.check.verdict`). The exact gradient may be
0 where what is computed is not: that of a score is P·(dP - D), and where both terms are alike - one key, the
bias of keys, a query sure of its key - their rounding is all there is. So a gradient counts in units of
itself, or of a half of what is there before D is subtracted, whichever is larger.

Over 3100 cases and backends, 23000 parts of them, right ones used at most 0.9 of these limits. In units of
the gradient alone one in 40 was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnbench.check.verdict import Scale, scale_of
from attnbench.inputs.rounding import EPS
from attnbench.types.case import Dtype

if TYPE_CHECKING:
    from attnbench.types.rule import Array

BEFORE = 0.5
"""The share of what is there before D is subtracted that counts. More widens limits of ordinary gradients
(in bfloat16 at 1 from 2.6 % of dq to 4.2 %), a quarter refused one of 3000."""

VANISHED = 4.0
"""How much of it counts where nothing of the gradient is left: rounding adds up over D features."""

FEW = 8.0
"""A root mean square over n numbers, as of a sink for each of two heads, may well be sqrt(1 + FEW / n) times
too small."""


SUMMED = 2.0
"""How much more of both counts for a bias, whose gradient is a sum over all rows of the batch, in any order:
of 574 right ones over the suite ``edges`` two used 1.1 and 1.6 of the limits without it."""


def gradient_scale(
    exact: Sequence[Array], held: Sequence[Array], dtype: Dtype, *, summed: bool = False
) -> Scale:
    """The scale of one part's gradients over all draws, for :func:`attnbench.check.verdict.verdict`.

    summed: whether it is that of a bias.
    It serves as that of the output and as that of the values. exact: the gradients by
    :func:`attnbench.check.gradients.plain_gradients` in float64; held: the same with its denominators held.
    """
    own, before = scale_of(exact), scale_of(held)
    share = VANISHED if own.rms <= EPS[dtype] * before.rms else BEFORE
    few = float(np.sqrt(1 + FEW / sum(array.size for array in exact)))
    few *= SUMMED if summed else 1.0
    return Scale(
        rms=few * max(own.rms, share * before.rms), largest=few * max(own.largest, share * before.largest)
    )
