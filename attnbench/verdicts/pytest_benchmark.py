"""pytest-benchmark's gate: a statistic that grew by more than so many percent.

Source: pytest-benchmark's documentation of ``--benchmark-compare-fail``, which fails for ``median:5%`` where
the new median over the old one, less one, is above 5 %. Nothing is said of what became faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnbench.types.verdict import SampleSets, VerdictRule, Word
from attnbench.verdicts.pooled import pooled

_PERCENT = 5.0


def _gate(statistic: Callable[[NDArray[np.float64]], float]) -> Callable[[SampleSets, SampleSets], Word]:
    def decide(contender: SampleSets, baseline: SampleSets) -> Word:
        mine, base = pooled(contender), pooled(baseline)
        if not len(mine) or not len(base):
            return "unclear"
        grown = statistic(mine) / statistic(base) * 100 - 100
        return "slower" if grown > _PERCENT else "unclear"

    return decide


MEDIAN_5_PERCENT = VerdictRule(
    name="median_5pct",
    summary="pytest-benchmark's gate median:5%: slower where the median grew by more than 5 %",
    decide=_gate(lambda samples: float(np.median(samples))),
)

MIN_5_PERCENT = VerdictRule(
    name="min_5pct",
    summary="pytest-benchmark's gate min:5%: slower where the minimum grew by more than 5 %",
    decide=_gate(lambda samples: float(samples.min())),
)
