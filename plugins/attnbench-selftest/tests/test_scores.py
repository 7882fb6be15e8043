"""Scores of made-up trials: identical candidates pass, slower ones are refuted or found."""

from __future__ import annotations

import pytest
from attnbench_selftest.candidates import copies
from attnbench_selftest.cells import Peers
from attnbench_selftest.measure import trials_of
from attnbench_selftest.plan import Part
from attnbench_selftest.rates import exit_code
from attnbench_selftest.rivals import RULES
from attnbench_selftest.scores import score_aa, score_power
from synthetic import alike, repetition_line, slower_by, trials

AA = Part(16, copies(9), 0.5, 17, trials=5, together=1)
POWER = Part(16, ("copy_0", *(f"plus5_{i}" for i in range(4))), 0.25, 17, trials=8, together=1, percent=5)


def test_a_trial_has_the_repetitions_of_one_case_however_a_run_took_turns() -> None:
    lines = [repetition_line(i, alike(), ("copy_0",), case) for i in range(7) for case in ("b", "a")]
    found = [(one.cluster, [line.index for line in one.repetitions]) for one in trials_of(lines, 3)]
    assert found == [("b", [0, 1, 2]), ("b", [3, 4, 5]), ("a", [0, 1, 2]), ("a", [3, 4, 5])]


def test_identical_candidates_pass_and_slower_ones_are_refuted() -> None:
    same = score_aa({AA: trials(AA, alike())}, True, Peers(RULES)).findings
    assert [one.events for one in same] == [0, 0, 0, 40]
    assert exit_code(same) == 0
    bad = score_aa({AA: trials(AA, slower_by(0.05))}, True, Peers(RULES)).findings
    assert (bad[0].events, bad[0].outcome, bad[1].events) == (40, "refuted", 1)
    assert bad[0].peers["t_test"] == bad[0].peers["u_test"] == 1
    assert exit_code(bad) == 1


def test_slow_candidates_need_not_be_proved_the_same() -> None:
    slow = Part(2048, copies(9), 0.05, 17, trials=5, together=1)
    same = score_aa({slow: trials(slow, alike())}, True, Peers(RULES)).findings
    assert [(one.events, one.trials) for one in same] == [(0, 40), (0, 1), (0, 40)]
    assert exit_code(score_aa({slow: trials(slow, slower_by(0.05))}, True, Peers(RULES)).findings) == 1


def test_planted_slowdowns_are_found_and_missing_ones_refuted() -> None:
    scored = score_power({POWER: trials(POWER, slower_by(0.05))}, True, Peers(RULES))
    assert (scored.findings[0].events, exit_code(scored.findings)) == (32, 0)
    assert scored.effects[0].realised == pytest.approx(0.05, abs=0.001)
    assert exit_code(score_power({POWER: trials(POWER, alike())}, True, Peers(RULES)).findings) == 1
    assert exit_code(score_power({POWER: trials(POWER, alike())}, False, Peers(RULES)).findings) == 0


def test_nine_repetitions_find_a_slow_call_in_a_case_of_nine_and_not_among_forty_cells() -> None:
    names = ("copy_0", "plus10_0")
    slow, quick = (Part(length, names, 0.05, 9, trials=1, together=1, percent=10) for length in (2048, 16))
    found = [score_power({part: trials(part, slower_by(0.1))}, True, Peers(RULES)) for part in (slow, quick)]
    assert [scored.findings[0].events for scored in found] == [1, 0]


def test_nothing_measured_refutes_nothing() -> None:
    assert exit_code(score_aa({AA: []}, True, Peers(RULES)).findings) == 0
