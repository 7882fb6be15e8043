"""Welch's t-test: means that differ by more than two samples of unequal variance would.

Source: Welch, The generalization of 'Student's' problem when several different population variances are
involved (1947). Used by hyperfine's ``welch_ttest.py`` and many a script.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attnbench.types.verdict import SampleSets, VerdictRule, Word
from attnbench.verdicts.pooled import pooled, word

_LEVEL = 0.05


def welch_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Two-sided p-value that the means of x and y are one; each has two samples at least.

    Where neither varies, 1 for equal means and 0 for others.
    """
    from scipy.special import stdtr

    of_x, of_y = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    difference = float(x.mean() - y.mean())
    if of_x + of_y == 0:
        return float(difference == 0)
    freedom = (of_x + of_y) ** 2 / (of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1))
    return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(of_x + of_y)))


def _decide(contender: SampleSets, baseline: SampleSets) -> Word:
    mine, base = pooled(contender), pooled(baseline)
    if min(len(mine), len(base)) < 2:
        return "unclear"
    return word(float(mine.mean() - base.mean()), welch_p(mine, base) < _LEVEL)


T_TEST = VerdictRule(
    name="t_test", summary="Welch's t-test of the means, p < 0.05 (hyperfine's script)", decide=_decide
)
