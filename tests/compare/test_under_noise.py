"""The whole way from samples to a word, under noise whose truth is known.

Trials are counted against exact binomial bounds, each of which a right build breaks with a probability
under ``CHANCE``; there are fewer than a hundred, so a right build fails with a probability under 1e-6. (Seeds
are fixed: what a build does once it does always.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp, lgamma, log

import numpy as np
import pytest
from noise import EVEN, MILD, NOISES, Plan, draw_trials

from attnbench.runner.options import repetitions_for
from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.tests import LEVEL
from attnbench.stats.verdict import decide
from attnbench.types.record import RepetitionLine

CHANCE = 1e-8
TRIALS = 250
AT_NOMINAL_5_PERCENT = 20 / 512
"""What the sign test over nine repetitions does at 0.05: it says yes where eight or nine agree."""

SMALLEST_DELTA = 1e-9
"""Any difference counts: what is left is the p-value alone."""

CONTINUOUS = [name for name in NOISES if name != "coarse clock"]


def upper(trials: int, rate: float) -> int:
    """A number that a binomial count exceeds with probability ``CHANCE`` at most."""

    def chance(k: int) -> float:
        ways = lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1)
        return exp(ways + k * log(rate) + (trials - k) * log(1 - rate))

    beyond, count = 0.0, trials
    while beyond + chance(count) <= CHANCE:
        beyond += chance(count)
        count -= 1
    return count


def lower(trials: int, rate: float) -> int:
    """A number below which such a count stays with probability ``CHANCE`` at most."""
    return trials - upper(trials, 1 - rate)


def word_of(found: Comparison | None, delta: float = SMALLEST_DELTA) -> str:
    if found is None:
        return "unclear"
    low, high = (found.interval.low, found.interval.high) if found.interval else (None, None)
    return decide(found.ratio, low, high, found.p_value, found.p_value, delta)


def trials_of(
    name: str, plan: Plan = EVEN, trials: int = TRIALS, **truth: float
) -> list[list[RepetitionLine]]:
    seed = sorted(NOISES).index(name)
    return draw_trials(np.random.default_rng(seed), trials, NOISES[name], plan, **truth)


@cache
def identical(name: str) -> tuple[Comparison, ...]:
    """Identical candidates, many times."""
    found = [compare(repetitions, "mine", "base") for repetitions in trials_of(name)]
    return tuple(comparison for comparison in found if comparison is not None)


def count(comparisons: tuple[Comparison, ...], what: Callable[[Comparison], bool]) -> int:
    return sum(what(comparison) for comparison in comparisons)


def test_the_bounds_of_this_file() -> None:
    assert 0.5**30 < CHANCE < 0.5**26
    assert upper(30, 0.5) == 29
    assert lower(30, 0.5) == 1
    assert upper(TRIALS, LEVEL / 2) < 0.035 * TRIALS


@pytest.mark.parametrize("name", NOISES)
def test_identical_candidates_are_hardly_ever_told_apart(name: str) -> None:
    assert len(identical(name)) == TRIALS
    for word in ("slower", "faster"):
        told = count(identical(name), lambda c, word=word: word_of(c) == word)
        assert told <= upper(TRIALS, LEVEL / 2)


def test_nor_under_all_noises_together() -> None:
    found = tuple(c for name in NOISES for c in identical(name))
    slower = count(found, lambda c: word_of(c) == "slower")
    assert slower <= upper(len(found), LEVEL / 2)
    assert upper(len(found), LEVEL / 2) < 0.009 * len(found)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_p_value_is_exact_not_merely_safe(name: str) -> None:
    """Neither too often nor too seldom: what is given away here is missing where there is a difference."""
    fired = count(identical(name), lambda c: c.p_value <= 0.05)
    assert lower(TRIALS, AT_NOMINAL_5_PERCENT) <= fired <= upper(TRIALS, AT_NOMINAL_5_PERCENT)


@pytest.mark.parametrize("name", NOISES)
def test_the_interval_holds_the_true_ratio_as_often_as_it_says(name: str) -> None:
    truth = 1.05
    trials = trials_of(name, trials=150, mine=truth)
    held = 0
    for repetitions in trials:
        found = compare(repetitions, "mine", "base")
        assert found is not None
        assert found.interval is not None
        assert found.interval.confidence == 0.99609375
        # What the clock's grain does to a time is no matter of statistics.
        grain = NOISES[name].grain_ns / 100_000
        held += found.interval.low * (1 - grain) <= truth <= found.interval.high * (1 + grain)
    assert held >= lower(150, 0.99609375)


@pytest.mark.parametrize(("truth", "word"), [(1.05, "slower"), (1 / 1.05, "faster")])
def test_a_planted_difference_of_5_percent_is_found(truth: float, word: str) -> None:
    """Set medians stray by about 1 %: one of nine is on the wrong side less than once in 10^4 trials."""
    rng = np.random.default_rng(1)
    trials = draw_trials(rng, 200, MILD, Plan({"mine": 10, "base": 10}), mine=truth)
    found = [word_of(compare(repetitions, "mine", "base"), delta=0.02) for repetitions in trials]
    assert found.count(word) >= lower(200, 0.9999)
    assert set(found) <= {word, "unclear"}


def test_identical_candidates_are_proved_the_same_under_mild_noise() -> None:
    rng = np.random.default_rng(2)
    trials = draw_trials(rng, 200, MILD, Plan({"mine": 10, "base": 10}, repetitions=repetitions_for(0.25)))
    words = [word_of(compare(repetitions, "mine", "base"), delta=0.02) for repetitions in trials]
    assert words.count("same") >= lower(200, 0.99)
    assert words.count("same") + words.count("unclear") == 200


@pytest.mark.parametrize("name", ["quiet", "two speeds", "mostly preempted"])
@pytest.mark.parametrize(
    "plan",
    [
        Plan({"mine": 15, "base": 4}),
        Plan({"mine": 1, "base": 6}),
        Plan({"mine": 1, "base": 1}, segments=1),
        Plan(
            {"mine": 3, "base": 3},
            missing={"mine": frozenset({0, 4}), "base": frozenset({4, 8})},
            repetitions=12,
        ),
    ],
    ids=["unequal counts", "one against many", "one sample", "missing repetitions"],
)
def test_odd_counts_neither_crash_nor_cry_wolf(name: str, plan: Plan) -> None:
    comparisons = [compare(repetitions, "mine", "base") for repetitions in trials_of(name, plan, 100)]
    words = [word_of(found) for found in comparisons]
    assert max(words.count("slower"), words.count("faster")) <= upper(100, LEVEL)
    assert all(found is not None and found.repetitions == 9 for found in comparisons)


def slow_calls(repetitions: int) -> Plan:
    """Six backends, each of which is called once in a repetition."""
    return Plan(dict.fromkeys(("mine", "base", "a", "b", "c", "d"), 1), segments=1, repetitions=repetitions)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("repetitions", [3, 8])
def test_fewer_repetitions_than_the_sign_test_needs_cry_wolf_no_more_often(
    name: str, repetitions: int
) -> None:
    """The model assumes normal noise, which most of these are not."""
    trials = trials_of(name, slow_calls(repetitions))
    words = [word_of(compare(one, "mine", "base")) for one in trials]
    assert max(words.count("slower"), words.count("faster")) <= upper(TRIALS, LEVEL / 2)


@pytest.mark.parametrize(("repetitions", "truth"), [(3, 6.9), (5, 2.0), (8, 1.5)])
def test_they_find_large_differences(repetitions: int, truth: float) -> None:
    rng = np.random.default_rng(7)
    trials = draw_trials(rng, 200, MILD, slow_calls(repetitions), mine=truth)
    words = [word_of(compare(one, "mine", "base"), delta=0.02) for one in trials]
    assert words.count("slower") >= 0.8 * 200
    assert words.count("faster") == 0
