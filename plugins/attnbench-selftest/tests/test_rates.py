"""Bounds of rates against published values, and numbers of trials against the tails they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from attnbench_selftest.rates import (
    Count,
    Side,
    design_effect,
    false_failure,
    lower_bound,
    shared_baseline_effect,
    trials_to_show,
    upper_bound,
)


@pytest.mark.parametrize(
    ("events", "trials", "low", "high"),
    [
        # The rule of three, exactly: 1 - 0.05^(1/n).
        (0, 20, 0.0, 1 - 0.05 ** (1 / 20)),
        (0, 1500, 0.0, 0.00199516),
        (299, 299, 0.05 ** (1 / 299), 1.0),
        # Two-sided 90 % interval of 3 in 10.
        (3, 10, 0.0872644, 0.6066242),
        (1, 2, 1 - 0.95**0.5, 0.95**0.5),
    ],
)
def test_clopper_and_pearson(events: int, trials: int, low: float, high: float) -> None:
    assert lower_bound(events, trials) == pytest.approx(low, abs=1e-7)
    assert upper_bound(events, trials) == pytest.approx(high, abs=1e-7)


@given(st.integers(1, 200), st.data())
def test_bounds_are_where_the_tails_are_five_percent(trials: int, data: st.DataObject) -> None:
    events = data.draw(st.integers(0, trials))
    low, high = lower_bound(events, trials), upper_bound(events, trials)
    assert 0 <= low <= events / trials <= high <= 1
    if events > 0:
        assert stats.binom.sf(events - 1, trials, low) == pytest.approx(0.05, rel=1e-6)
    if events < trials:
        assert stats.binom.cdf(events, trials, high) == pytest.approx(0.05, rel=1e-6)


def test_more_confidence_is_a_wider_bound() -> None:
    assert (
        lower_bound(30, 40, 0.99)
        < lower_bound(30, 40)
        < 0.75
        < upper_bound(30, 40)
        < upper_bound(30, 40, 0.99)
    )


def test_fewer_effective_trials_are_a_wider_bound() -> None:
    assert upper_bound(0.0, 12.5) > upper_bound(0, 13)
    assert lower_bound(6.25, 12.5) < lower_bound(25, 50)


def test_trials_that_are_independent_have_no_design_effect() -> None:
    assert design_effect([Count(1, 1)] * 5 + [Count(0, 1)] * 5) == pytest.approx(10 / 9)
    assert design_effect([Count(2, 4), Count(2, 4), Count(2, 4)]) == 1


def test_clusters_that_are_all_or_nothing_count_as_one_trial_each() -> None:
    many = [Count(8, 8), Count(0, 8)] * 50
    assert design_effect(many) == pytest.approx(8, rel=0.02)


@pytest.mark.parametrize("clusters", [[], [Count(3, 8)], [Count(0, 8)] * 4, [Count(8, 8)] * 4])
def test_where_nothing_is_known_of_clusters_the_effect_is_one(clusters: list[Count]) -> None:
    assert design_effect(clusters) == 1


def test_the_effect_of_a_shared_baseline_is_that_of_simulated_sets() -> None:
    import numpy as np

    sets, cells, rng = 3, 8, np.random.default_rng(4)
    times = rng.random((40_000, sets, cells + 1))
    slower = (times[:, :, 1:] > times[:, :, :1]).all(axis=1)
    independent = slower.mean() * (1 - slower.mean()) / cells
    assert slower.mean(axis=1).var() / independent == pytest.approx(
        shared_baseline_effect(cells, sets), rel=0.03
    )


def test_the_effect_of_a_shared_baseline_fades_with_sets() -> None:
    assert shared_baseline_effect(1, 9) == 1
    assert shared_baseline_effect(8, 9) == pytest.approx(1.168744)
    assert shared_baseline_effect(8, 17) == pytest.approx(1.007051)


@given(
    st.sampled_from(["at most", "at least"]),
    st.floats(0.01, 0.99),
    st.integers(1, 300),
    st.sampled_from([0.01, 0.0025]),
)
def test_a_false_failure_is_the_tail_that_refutes(
    side: Side, target: float, trials: int, level: float
) -> None:
    """Counted the long way: the chance of every number of events whose bound lies beyond the target."""
    chance = 0.0
    for events in range(trials + 1):
        if side == "at most":
            refutes = lower_bound(events, trials, 1 - level) > target * (1 + 1e-9)
        else:
            refutes = upper_bound(events, trials, 1 - level) < target * (1 - 1e-9)
        if refutes:
            chance += float(stats.binom.pmf(events, trials, target))
    found = false_failure(side, target, trials, level)
    assert found == pytest.approx(chance, rel=1e-6, abs=1e-12)
    assert found < level


def test_two_false_alarms_in_forty_cells_refute_and_one_does_not() -> None:
    """One of 40 happens to a right build in 8 % of runs, two in 0.3 %."""
    assert false_failure("at most", 0.002, 40, 0.0033) == pytest.approx(stats.binom.sf(1, 40, 0.002))


@pytest.mark.parametrize(
    ("side", "target", "rate", "trials"),
    [
        ("at most", 0.002, 0.0, 1497),
        ("at most", 0.002, 0.0001, 3146),
        ("at least", 0.95, 0.99, 234),
        ("at least", 0.99, 0.999, 773),
        ("at least", 0.95, 1.0, 59),
    ],
)
def test_trials_that_show_a_target(side: Side, target: float, rate: float, trials: int) -> None:
    assert trials_to_show(side, target, rate) == trials
    wrong, allowed = (rate, target) if side == "at most" else (1 - rate, 1 - target)
    # As many wrong ones as still show it come up with a chance of 99 %.
    most = max(k for k in range(20) if stats.binom.cdf(k, trials, allowed) <= 0.05)
    assert stats.binom.cdf(most, trials, wrong) >= 0.99


@pytest.mark.parametrize(("target", "rate"), [(0.95, 0.95), (0.95, 0.9), (0.95, 1.1)])
def test_a_build_no_better_than_the_target_shows_nothing(target: float, rate: float) -> None:
    with pytest.raises(ValueError, match="can't show"):
        trials_to_show("at least", target, rate)
