"""From counts to outcomes, the last line and the exit status."""

from __future__ import annotations

import pytest

from attnbench.selftest.bounds import Count
from attnbench.selftest.findings import (
    FALSE_FAILURES,
    Finding,
    Outcome,
    exit_code,
    last_line,
    percent,
    rate,
    target,
    value,
)


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
    assert target(at_least(1, 2)) == "≥ 95 %"
    assert value(at_least(1, 2), None) == ""
    ns = Finding("cost", "at most", 20.0, True, 3.456, None, 4.0, "met", unit="ns")
    assert (value(ns, ns.estimate), target(ns)) == ("3.46 ns", "≤ 20 ns")
