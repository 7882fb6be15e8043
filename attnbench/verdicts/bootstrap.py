"""The bootstrap: a 95 % interval of the difference of medians that leaves out 0.

Source: Efron, Bootstrap methods: another look at the jackknife (1979), percentile interval; criterion.rs and
Chen & Revels (2016) compare by the bootstrap too. It takes the samples for independent, which they are not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.types.verdict import SampleSets, VerdictRule, Word
from attnbench.verdicts.pooled import pooled, word

_RESAMPLES = 2000
_LEVEL = 0.05
_SEED = 20_24


def bootstrap_medians(samples: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Medians of resamples of ``samples``, without making the resamples.

    A resample picks by uniform numbers, and its order statistics are the samples at theirs. The middle one of
    n uniform numbers is Beta distributed; of an even number the upper of the middle two is the least of the
    n/2 that lie above the lower. (David and Nagaraja, Order Statistics, 2003, section 2.5.)
    """
    ordered, count = np.sort(samples), len(samples)
    half = (count + 1) // 2
    lower = rng.beta(half, count - half + 1, _RESAMPLES)
    low = ordered[_places(lower, count)]
    if count % 2:
        return low
    upper = lower + (1 - lower) * (1 - rng.random(_RESAMPLES) ** (1 / half))
    return np.asarray((low + ordered[_places(upper, count)]) / 2)


def _places(uniform: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    return np.minimum((uniform * count).astype(np.int64), count - 1)


def _decide(contender: SampleSets, baseline: SampleSets) -> Word:
    mine, base = pooled(contender), pooled(baseline)
    if not len(mine) or not len(base):
        return "unclear"
    rng = np.random.default_rng(_SEED)
    differences = bootstrap_medians(mine, rng) - bootstrap_medians(base, rng)
    low, high = np.quantile(differences, (_LEVEL / 2, 1 - _LEVEL / 2))
    return word(float(low + high), bool(low > 0 or high < 0))


BOOTSTRAP = VerdictRule(
    name="bootstrap",
    summary="bootstrap 95 % interval of the difference of medians leaves out 0 (criterion's way)",
    decide=_decide,
)
