"""The Mann-Whitney U test: one sample that ranks above the other.

Source: Mann and Whitney, On a test of whether one of two random variables is stochastically larger than the
other (1947). Used by google/benchmark's ``compare.py`` (its default level is 0.05).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.types.verdict import SampleSets, VerdictRule, Word
from attnbench.verdicts.pooled import pooled, word

_LEVEL = 0.05


def mann_whitney_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Two-sided p-value that neither of x and y tends to be larger; 1 where there is nothing to tell."""
    from scipy.stats import mannwhitneyu

    if not len(x) or not len(y) or min(x.min(), y.min()) == max(x.max(), y.max()):
        return 1.0
    return float(mannwhitneyu(x, y, alternative="two-sided").pvalue)


def _decide(contender: SampleSets, baseline: SampleSets) -> Word:
    mine, base = pooled(contender), pooled(baseline)
    if not len(mine) or not len(base):
        return "unclear"
    return word(float(np.median(mine) - np.median(base)), mann_whitney_p(mine, base) < _LEVEL)


U_TEST = VerdictRule(
    name="u_test", summary="Mann-Whitney U test, p < 0.05 (google/benchmark's compare.py)", decide=_decide
)
