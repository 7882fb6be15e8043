"""Bounds of rates against published values; outcomes, the last line and the exit status."""

from __future__ import annotations

import pytest
from attnbench_selftest.rates import (
    FALSE_FAILURES,
    Count,
    Finding,
    Outcome,
    Side,
    design_effect,
    exit_code,
    false_failure,
    last_line,
    lower_bound,
    percent,
    rate,
    shared_baseline_effect,
    target_text,
    upper_bound,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


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


def test_the_effect_of_a_shared_baseline_is_that_of_simulated_repetitions() -> None:
    import numpy as np

    repetitions, cells, rng = 3, 8, np.random.default_rng(4)
    times = rng.random((40_000, repetitions, cells + 1))
    slower = (times[:, :, 1:] > times[:, :, :1]).all(axis=1)
    independent = slower.mean() * (1 - slower.mean()) / cells
    assert slower.mean(axis=1).var() / independent == pytest.approx(
        shared_baseline_effect(cells, repetitions), rel=0.03
    )


def test_the_effect_of_a_shared_baseline_fades_with_repetitions() -> None:
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


def at_most(events: int, trials: int, *, first: bool = True, claims: int = 3) -> Finding:
    return rate("alarms", "at most", 0.002, [Count(events, trials)], first=first, claims=claims)


def at_least(events: int, trials: int) -> Finding:
    return rate("found", "at least", 0.95, [Count(events, trials)], first=True, claims=3)


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (at_most(0, 1500), "met"),
        (at_most(0, 1490), "not refuted"),
        (at_most(0, 1), "not refuted"),
        (at_most(1, 40), "missed"),
        (at_most(2, 40), "refuted"),
        (at_most(40, 40), "refuted"),
        (at_least(59, 59), "met"),
        (at_least(58, 58), "not refuted"),
        (at_least(39, 40), "not refuted"),
        (at_least(36, 40), "missed"),
        (at_least(30, 40), "refuted"),
        (at_least(0, 3), "refuted"),
        (at_least(0, 1), "missed"),
    ],
)
def test_outcomes(finding: Finding, outcome: Outcome) -> None:
    assert finding.outcome == outcome


def test_a_rate_has_its_estimate_its_bounds_and_its_counts() -> None:
    found = at_least(3, 10)
    assert (found.estimate, found.events, found.trials, found.effective) == (0.3, 3, 10, 10)
    assert found.low == pytest.approx(0.0872644)
    assert found.high == pytest.approx(0.6066242)
    assert 0 < found.false_failure < FALSE_FAILURES / 3


def test_nothing_measured_has_no_estimate_and_refutes_nothing() -> None:
    found = rate("found", "at least", 0.95, [], first=True, claims=1)
    assert (found.estimate, found.low, found.high, found.trials) == (None, None, None, 0)
    assert found.outcome == "not refuted"
    assert exit_code([found]) == 0


def test_cells_that_fail_together_count_as_fewer() -> None:
    """Five cases of eight, one of them bad throughout: nothing that independent cells would give."""
    clusters = [Count(0, 8)] + [Count(8, 8)] * 4
    found = rate("found", "at least", 0.95, clusters, first=True, claims=1)
    assert found.estimate == 0.8
    assert found.effective < 8
    assert found.outcome == "missed"
    assert at_least(32, 40).outcome == "refuted"


def test_a_known_effect_counts_where_data_say_nothing() -> None:
    found = rate("alarms", "at most", 0.002, [Count(0, 8)] * 200, first=True, claims=1, effect=1.2)
    assert found.effective == pytest.approx(1600 / 1.2)
    assert found.outcome == "not refuted"
    assert at_most(0, 1600).outcome == "met"


def test_only_a_refuted_first_target_fails() -> None:
    assert exit_code([at_most(0, 40), at_most(1, 40)]) == 0
    assert exit_code([at_most(0, 40), at_most(2, 40)]) == 1
    assert exit_code([at_most(40, 40, first=False)]) == 0
    assert exit_code([]) == 0


def test_the_more_claims_the_rarer_each_is_refuted() -> None:
    """So that a right build fails a command in one of a hundred, however much it claims."""
    for claims in (1, 3, 20):
        found = [at_most(0, 40, claims=claims)] * claims
        assert sum(one.false_failure for one in found) <= FALSE_FAILURES
    assert at_most(2, 40, claims=3).outcome == "refuted"
    assert at_most(2, 40, claims=20).outcome == "missed"


def test_the_last_line_of_what_is_fine() -> None:
    findings = [at_most(0, 1500), at_most(0, 40), at_most(1, 40), at_most(40, 40, first=False)]
    assert last_line("aa", findings) == (
        "selftest aa: nothing refuted; of 3 targets 1 shown to be met, 1 neither shown nor refuted, "
        "1 missed but not refuted"
    )


def test_the_last_line_of_what_is_refuted_names_it_with_its_false_failures() -> None:
    line = last_line("aa", [at_most(0, 40), at_most(4, 40)])
    assert line.startswith("selftest aa: REFUTED: alarms: 10 %, not ≤ 0.2 % (")
    assert "a build that meets it exactly fails 0.593 % of times" in line


def test_the_last_line_of_nothing() -> None:
    assert last_line("aa", []) == "selftest aa: nothing refuted; of 0 targets none was measured"


def test_numbers_as_people_read_them() -> None:
    assert [percent(share) for share in (0.002, 0.0390625, 1.0, 0.0)] == ["0.2 %", "3.91 %", "100 %", "0 %"]
    assert target_text(at_least(1, 2)) == "≥ 95 %"
