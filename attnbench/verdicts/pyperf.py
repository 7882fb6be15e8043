"""pyperf's rule: Student's t-test of two samples with a pooled variance, 95 % certainty.

Source: pyperf's documentation of ``compare_to``: whether two samples differ significantly is told by a
two-sample, two-tailed t-test. pyperf wants as many samples of one as of the other; of the longer the first
are taken.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attnbench.types.verdict import SampleSets, VerdictRule, Word
from attnbench.verdicts.pooled import pooled, word

_LEVEL = 0.05


def student_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Two-sided p-value that the means of x and y are one, their variances taken for one.

    x and y are of one length, two samples at least. Where neither varies, 1 for equal means and 0 for others.
    """
    from scipy.special import stdtr

    difference = float(x.mean() - y.mean())
    error = math.sqrt((float(x.var(ddof=1)) + float(y.var(ddof=1))) / len(x))
    if error == 0:
        return float(difference == 0)
    return float(2 * stdtr(2 * len(x) - 2, -abs(difference) / error))


def _decide(contender: SampleSets, baseline: SampleSets) -> Word:
    mine, base = pooled(contender), pooled(baseline)
    count = min(len(mine), len(base))
    if count < 2:
        return "unclear"
    mine, base = mine[:count], base[:count]
    return word(float(mine.mean() - base.mean()), student_p(mine, base) < _LEVEL)


PYPERF = VerdictRule(
    name="pyperf",
    summary="pyperf compare_to: Student's t-test of the means, 95 % certainty",
    decide=_decide,
)
