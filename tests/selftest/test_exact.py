"""The exact rate of the sign test, and how far from it is too far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import TERMS, FactorOf, alike, slower_by, trial, trials

from attnbench.selftest.bounds import Count
from attnbench.selftest.contenders import copies
from attnbench.selftest.findings import FALSE_FAILURES
from attnbench.selftest.parts import Part
from attnbench.selftest.peers import Peers
from attnbench.selftest.score_exact import by_chance, exact_rate, fired, score_exact, t_interval

PART = Part(16, copies(14), 0.02, 9, trials=12, together=1)


@pytest.mark.parametrize(
    ("sets", "rate"),
    [
        (5, 0.0),  # 2 / 32 is above 5 %
        (6, 2 / 64),
        (8, 2 / 256),  # 2 · 9 / 256 is above it
        (9, 2 * (1 + 9) / 512),
        (17, 2 * (1 + 17 + 136 + 680 + 2380) / 2**17),
        (20, 2 * (1 + 20 + 190 + 1140 + 4845 + 15504) / 2**20),
    ],
)
def test_the_size_of_a_discrete_test(sets: int, rate: float) -> None:
    assert exact_rate(sets) == pytest.approx(rate)


def test_the_rate_is_that_of_the_test_itself() -> None:
    """All 512 ways in which nine signs can fall, through the very test that runs use."""
    from itertools import product

    from attnbench.compare.interval import sign_test

    fires = [sign_test(signs) <= 0.05 for signs in product((-1.0, 1.0), repeat=9)]
    assert np.mean(fires) == exact_rate(9)


def test_all_pairs_of_a_trial_count() -> None:
    assert fired(trial(PART, alike()), PART.contenders).trials == 91
    everyone_apart: FactorOf = lambda name, index: 1.0 + int(name.removeprefix("copy_")) / 10  # noqa: E731
    assert fired(trial(PART, everyone_apart), PART.contenders) == Count(91, 91)
    assert fired(trial(PART, lambda name, index: 1.0), PART.contenders) == Count(0, 91)


def test_identical_contenders_pass() -> None:
    scored = score_exact({PART: trials(PART, alike(seed=11))}, TERMS, Peers([]))
    (found,) = scored.findings
    assert (found.side, found.target, found.trials) == ("exactly", exact_rate(9), 12 * 91)
    assert found.outcome in ("met", "not refuted")
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.target <= found.high
    assert found.false_failure == FALSE_FAILURES
    assert "12 trials of 14 contenders on 12 cases" in scored.notes[0]


def test_one_contender_that_is_slower_is_refuted() -> None:
    """Its 13 pairs of 91 always fire: 17 % instead of 4 %."""
    (found,) = score_exact({PART: trials(PART, slower_by(0.05))}, TERMS, Peers([])).findings
    assert found.estimate == pytest.approx(13 / 91, abs=0.05)
    assert found.outcome == "refuted"


def test_a_test_that_never_fires_is_refuted_too() -> None:
    (found,) = score_exact({PART: trials(PART, lambda name, index: 1.0)}, TERMS, Peers([])).findings
    assert (found.events, found.outcome) == (0, "refuted")


def test_two_cases_are_too_few_to_refute_anything() -> None:
    few = replace(PART, trials=2)
    (found,) = score_exact({few: trials(few, slower_by(0.05))}, TERMS, Peers([])).findings
    assert (found.outcome, found.low, found.high) == ("not refuted", None, None)
    (none,) = score_exact({PART: []}, TERMS, Peers([])).findings
    assert none.estimate is None


def test_a_case_that_is_off_as_a_whole_is_one_case_of_many() -> None:
    """Pairs of one case go wrong together, so that what one case does refutes nothing."""
    one = trial(PART, slower_by(0.05), "case0")
    rest = [trial(PART, alike(seed=20 + i), f"case{i}") for i in range(1, 5)]
    (found,) = score_exact({PART: [one, *rest]}, TERMS, Peers([])).findings
    assert found.outcome != "refuted"


def test_student_on_a_published_interval() -> None:
    """NIST's example of a confidence interval of a mean is too long; this is t = 4.303 by hand."""
    low, high = t_interval([1.0, 2.0, 3.0], 0.95)
    assert (low, high) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)


def test_what_chance_does_is_what_identical_contenders_do() -> None:
    """Of rates made by trials that are all alike about one in ten is as rare as one in ten."""
    rng = np.random.default_rng(6)
    p_values = []
    for _ in range(150):
        events = 0
        for _ in range(2):
            ranks = rng.random((9, 6))
            for one in range(6):
                for other in range(one):
                    above = int((ranks[:, one] > ranks[:, other]).sum())
                    events += above <= 1 or above >= 8
        p_values.append(by_chance(events / 30, exact_rate(9), 6, 9, 2))
    assert 0.02 <= np.mean(np.array(p_values) <= 0.1) <= 0.2


def test_a_rate_that_is_exact_is_no_surprise() -> None:
    assert by_chance(exact_rate(9), exact_rate(9), 6, 9, 10) == 1
    assert by_chance(1.0, exact_rate(9), 6, 9, 10) < 0.001
