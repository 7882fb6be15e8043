"""airspeed velocity's rule: medians apart by a factor of 1.1, and a U test at 0.002.

Source: ``asv compare`` and ``asv continuous``: results count as changed where they are statistically
different (the Mann-Whitney test of raw samples, p < 0.002) and beyond ``--factor``, 1.1 unless said.
"""

from __future__ import annotations

import numpy as np

from attnbench.types.verdict import SampleSets, VerdictRule, Word
from attnbench.verdicts.pooled import pooled, word
from attnbench.verdicts.u_test import mann_whitney_p

_LEVEL = 0.002
_FACTOR = 1.1


def _decide(contender: SampleSets, baseline: SampleSets) -> Word:
    mine, base = pooled(contender), pooled(baseline)
    if not len(mine) or not len(base):
        return "unclear"
    time, other = float(np.median(mine)), float(np.median(base))
    beyond = time > other * _FACTOR or time < other / _FACTOR
    return word(time - other, beyond and mann_whitney_p(mine, base) < _LEVEL)


ASV = VerdictRule(
    name="asv",
    summary="asv compare: medians beyond a factor of 1.1, and a Mann-Whitney test at 0.002",
    decide=_decide,
)
