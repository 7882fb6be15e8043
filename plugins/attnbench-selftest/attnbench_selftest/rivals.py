"""Verdict rules of other tools, for the self-test to score beside attnbench's own on the same samples.

All of them pool the samples of every repetition, as their tools do. Sources: pytest-benchmark's documentation
of ``--benchmark-compare-fail``; Welch (1947), as in hyperfine's ``welch_ttest.py``; pyperf's documentation of
``compare_to``, a t-test of samples of one length; Mann and Whitney (1947), as in google/benchmark's
``compare.py``; ``asv compare``, a factor of 1.1 and a U test at 0.002; Efron (1979), the percentile
bootstrap, as in criterion.rs and Chen & Revels (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from attnbench.hookspecs import hookimpl
from attnbench.types.extensions import SampleSets, VerdictRule, Word

Samples = NDArray[np.float64]
Decide = Callable[[Samples, Samples], Word]

_LEVEL = 0.05
_ASV_LEVEL = 0.002
_ASV_FACTOR = 1.1
_GATE_PERCENT = 5.0
_RESAMPLES = 2000
_SEED = 20_24


def pooled(repetitions: SampleSets) -> Samples:
    """Every sample, in ns per call, in the order measured."""
    return np.array([ns for one in repetitions for ns in one], dtype=np.float64)


def _word(difference: float, counts: bool) -> Word:
    """``slower`` or ``faster`` by the sign of candidate minus baseline, where it counts; else ``unclear``."""
    if not counts or difference == 0:
        return "unclear"
    return "slower" if difference > 0 else "faster"


def _rule(name: str, summary: str, decide: Decide, fewest: int = 1) -> VerdictRule:
    """A rule on pooled samples; ``unclear`` where a side has fewer samples than ``fewest``."""

    def of_repetitions(candidate: SampleSets, baseline: SampleSets) -> Word:
        mine, base = pooled(candidate), pooled(baseline)
        return "unclear" if min(len(mine), len(base)) < fewest else decide(mine, base)

    return VerdictRule(name, summary, of_repetitions)


def _gate(statistic: Callable[[Samples], float]) -> Decide:
    def decide(mine: Samples, base: Samples) -> Word:
        grown = statistic(mine) / statistic(base) * 100 - 100
        return "slower" if grown > _GATE_PERCENT else "unclear"

    return decide


def _median(samples: Samples) -> float:
    return float(np.median(samples))


def t_test_p(x: Samples, y: Samples, *, one_variance: bool) -> float:
    """Two-sided p-value that the means of x and y are one; each has two samples at least.

    Where neither varies, 1 for equal means and 0 for others. one_variance: Student's test, else Welch's.
    """
    from scipy.stats import ttest_ind_from_stats

    if x.min() == x.max() and y.min() == y.max():
        return float(x[0] == y[0])
    moments = [number for one in (x, y) for number in (one.mean(), one.std(ddof=1), len(one))]
    return float(ttest_ind_from_stats(*moments, equal_var=one_variance).pvalue)


def _by_welch(mine: Samples, base: Samples) -> Word:
    p = t_test_p(mine, base, one_variance=False)
    return _word(float(mine.mean() - base.mean()), p < _LEVEL)


def _by_pyperf(mine: Samples, base: Samples) -> Word:
    count = min(len(mine), len(base))
    mine, base = mine[:count], base[:count]
    p = t_test_p(mine, base, one_variance=True)
    return _word(float(mine.mean() - base.mean()), p < _LEVEL)


def mann_whitney_p(x: Samples, y: Samples) -> float:
    """Two-sided p-value that neither of x and y tends to be larger; 1 where there is nothing to tell."""
    from scipy.stats import mannwhitneyu

    if not len(x) or not len(y) or min(x.min(), y.min()) == max(x.max(), y.max()):
        return 1.0
    return float(mannwhitneyu(x, y, alternative="two-sided").pvalue)


def _by_mann_whitney(mine: Samples, base: Samples) -> Word:
    return _word(_median(mine) - _median(base), mann_whitney_p(mine, base) < _LEVEL)


def _by_asv(mine: Samples, base: Samples) -> Word:
    time, other = _median(mine), _median(base)
    beyond = time > other * _ASV_FACTOR or time < other / _ASV_FACTOR
    return _word(time - other, beyond and mann_whitney_p(mine, base) < _ASV_LEVEL)


def bootstrap_medians(samples: Samples, rng: np.random.Generator) -> Samples:
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


def _places(uniform: Samples, count: int) -> NDArray[np.int64]:
    return np.minimum((uniform * count).astype(np.int64), count - 1)


def _by_bootstrap(mine: Samples, base: Samples) -> Word:
    rng = np.random.default_rng(_SEED)
    differences = bootstrap_medians(mine, rng) - bootstrap_medians(base, rng)
    low, high = np.quantile(differences, (_LEVEL / 2, 1 - _LEVEL / 2))
    return _word(float(low + high), bool(low > 0 or high < 0))


RULES: tuple[VerdictRule, ...] = (
    _rule(
        "median_5pct",
        "pytest-benchmark's gate median:5%: slower where the median grew by more than 5 %",
        _gate(_median),
    ),
    _rule(
        "min_5pct",
        "pytest-benchmark's gate min:5%: slower where the minimum grew by more than 5 %",
        _gate(lambda samples: float(samples.min())),
    ),
    _rule("t_test", "Welch's t-test of the means, p < 0.05 (hyperfine's script)", _by_welch, fewest=2),
    _rule("pyperf", "pyperf compare_to: Student's t-test of the means, 95 % certainty", _by_pyperf, fewest=2),
    _rule("u_test", "Mann-Whitney U test, p < 0.05 (google/benchmark's compare.py)", _by_mann_whitney),
    _rule(
        "bootstrap",
        "bootstrap 95 % interval of the difference of medians leaves out 0 (criterion's way)",
        _by_bootstrap,
    ),
    _rule("asv", "asv compare: medians beyond a factor of 1.1, and a Mann-Whitney test at 0.002", _by_asv),
)


@hookimpl
def attnbench_verdict_rules() -> Iterable[VerdictRule]:
    """Gates on a statistic first, then tests, then rules that are both."""
    return RULES
