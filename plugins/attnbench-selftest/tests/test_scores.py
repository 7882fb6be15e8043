"""Scores of synthetic trials whose answers are known: what must pass passes, what must fail fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from synthetic import TERMS, FactorOf, alike, slower_by, trial, trials

from attnbench.plugins.registry import load_registry
from attnbench_selftest.contenders import (
    INLINE_KERNEL,
    INLINE_KERNELS,
    INLINE_NO_OP,
    INLINE_NO_OPS,
    NO_OP,
    copies,
)
from attnbench_selftest.rates import Finding, Scored, exit_code
from attnbench_selftest.plan import Part
from attnbench_selftest.cells import Peers
from attnbench_selftest.scores import score_aa
from attnbench.selftest.score_overhead import overhead, score_overhead
from attnbench_selftest.scores import score_power

AA = Part(16, copies(9), 0.5, 17, trials=5, together=1)
POWER = Part(16, ("copy_0", *(f"plus5_{i}" for i in range(4))), 0.25, 17, trials=8, together=1, percent=5)


@pytest.fixture(scope="module")
def peers() -> Callable[[], Peers]:
    rules = [entry.record for entry in load_registry().verdict_rules.values()]
    return lambda: Peers(rules)


def finding(scored: Scored, words: str) -> Finding:
    (found,) = (one for one in scored.findings if words in one.what)
    return found


def test_identical_contenders_pass(peers: Callable[[], Peers]) -> None:
    scored = score_aa({AA: trials(AA, alike())}, TERMS, peers())
    slower = finding(scored, "called slower, of cells")
    assert (slower.events, slower.trials, slower.outcome) == (0, 40, "not refuted")
    assert slower.effective == pytest.approx(40 / 1.007051)
    family = finding(scored, "runs of 40 cells")
    assert (family.events, family.trials) == (0, 1)
    for share in ("0.5", "0.25", "0.12"):
        same = finding(scored, f"proved the same, L=16 in {share} s")
        assert (same.events, same.trials, same.first) == (40, 40, share == "0.5")
    assert exit_code(scored.findings) == 0


def test_identical_contenders_that_come_out_slower_are_refuted(peers: Callable[[], Peers]) -> None:
    scored = score_aa({AA: trials(AA, slower_by(0.05))}, TERMS, peers())
    slower = finding(scored, "called slower, of cells")
    assert (slower.events, slower.trials, slower.outcome) == (40, 40, "refuted")
    assert finding(scored, "runs of 40 cells").events == 1
    assert finding(scored, "in 0.5 s").outcome == "refuted"
    assert finding(scored, "called faster").events == 0
    assert exit_code(scored.findings) == 1
    assert set(slower.peers) == set(peers().names)
    assert slower.peers["t_test"] == slower.peers["u_test"] == 1
    assert slower.peers["asv"] == 0


def test_noise_that_is_too_much_proves_nothing_the_same(peers: Callable[[], Peers]) -> None:
    scored = score_aa({AA: trials(AA, alike(0.1))}, TERMS, peers())
    assert finding(scored, "in 0.5 s").outcome == "refuted"
    assert finding(scored, "called slower, of cells").outcome != "refuted"


def test_parts_of_both_lengths_make_one_rate_of_alarms(peers: Callable[[], Peers]) -> None:
    long = replace(AA, length=512, budget_s=2.0, sets=20, contenders=copies(5), trials=2)
    scored = score_aa({AA: trials(AA, alike()), long: trials(long, alike())}, TERMS, peers())
    assert finding(scored, "called slower, of cells").trials == 48
    assert finding(scored, "L=512 in 2 s").trials == 8
    first = [one for one in scored.findings if one.first]
    assert len(first) == 4
    assert sum(one.false_failure for one in first) <= 0.01


def test_nothing_counts_against_a_build_whose_protocol_is_switched_off(peers: Callable[[], Peers]) -> None:
    bad = {AA: trials(AA, slower_by(0.05))}
    assert exit_code(score_aa(bad, replace(TERMS, whole=False, as_planned=False), peers()).findings) == 0
    stressed = score_aa(bad, replace(TERMS, as_planned=False), peers()).findings
    assert [one.what for one in stressed if one.first and one.outcome == "refuted"] == [
        "identical code called slower, of cells"
    ]
    assert exit_code(stressed) == 1


def test_what_was_stopped_before_anything_is_scored_as_nothing(peers: Callable[[], Peers]) -> None:
    scored = score_aa({AA: []}, TERMS, peers())
    assert {one.trials for one in scored.findings} == {0}
    assert exit_code(scored.findings) == 0


def test_planted_slowdowns_that_are_there_are_found(peers: Callable[[], Peers]) -> None:
    scored = score_power({POWER: trials(POWER, slower_by(0.05))}, TERMS, peers())
    found = finding(scored, "+5 % found, L=16 in 0.25 s")
    assert (found.events, found.trials, found.target, found.first) == (32, 32, 0.99, True)
    quarter = finding(scored, "+5 % found, L=16 in 0.062 s")
    assert (quarter.events, quarter.first) == (32, False)
    assert set(found.peers) == set(quarter.peers) == set(peers().names)
    (effect,) = scored.effects
    assert (effect.nominal, effect.sets) == (0.05, 17 * 32)
    assert effect.realised == pytest.approx(0.05, abs=0.001)
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low <= 0.05 <= effect.high
    assert exit_code(scored.findings) == 0


def test_slowdowns_that_are_not_found_are_refuted(peers: Callable[[], Peers]) -> None:
    scored = score_power({POWER: trials(POWER, alike())}, TERMS, peers())
    assert finding(scored, "in 0.25 s").outcome == "refuted"
    assert scored.effects[0].realised == pytest.approx(0.0, abs=0.001)
    assert exit_code(scored.findings) == 1


def test_a_slowdown_counts_as_found_only_if_it_would_be_in_a_run_of_forty(peers: Callable[[], Peers]) -> None:
    nine = replace(POWER, sets=9)
    assert finding(score_power({nine: trials(nine, slower_by(0.05))}, TERMS, peers()), "0.25 s").events == 0


def _no_op(reported_ns: float, inline_ns: float, inline: str) -> FactorOf:
    noise = alike(0.001)
    calls = {INLINE_NO_OP: INLINE_NO_OPS, INLINE_KERNEL: INLINE_KERNELS}[inline]

    def factor(name: str, index: int) -> float:
        return noise(name, index) * (inline_ns * calls if name == inline else reported_ns) / 40_000

    return factor


NOTHING = Part(1, (NO_OP, INLINE_NO_OP), 1.0, 20, trials=2, together=1)


@pytest.mark.parametrize(
    ("reported_ns", "outcome", "code"), [(26.0, "met", 0), (24.0, "met", 0), (90.0, "refuted", 1)]
)
def test_overhead_is_reported_less_inline(reported_ns: float, outcome: str, code: int) -> None:
    scored = score_overhead(
        {NOTHING: trials(NOTHING, _no_op(reported_ns, 25.0, INLINE_NO_OP))}, TERMS, Peers([])
    )
    (found,) = scored.findings
    assert found.estimate == pytest.approx(reported_ns - 25.0, abs=0.1)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.estimate <= found.high
    assert (found.outcome, found.trials, found.unit) == (outcome, 40, "ns")
    assert found.false_failure <= 0.01
    assert exit_code(scored.findings) == code


def test_overhead_of_a_call_that_computes_is_an_aim_beyond() -> None:
    part = Part(16, ("copy_0", INLINE_KERNEL), 8.0, 20, trials=1, together=1)
    scored = score_overhead({part: trials(part, _no_op(41_000, 40_000, INLINE_KERNEL))}, TERMS, Peers([]))
    (found,) = scored.findings
    assert found.estimate == pytest.approx(1000, abs=60)
    assert (found.outcome, found.first) == ("refuted", False)
    assert exit_code(scored.findings) == 0


def test_overhead_of_nothing_measured() -> None:
    assert overhead([], NO_OP, INLINE_NO_OP) is None
    (found,) = score_overhead({NOTHING: []}, TERMS, Peers([])).findings
    assert (found.estimate, found.outcome, found.first) == (None, "not refuted", True)


def test_overhead_pairs_within_a_set() -> None:
    """The machine is twice as slow in every other set; the difference doubles there and nowhere else."""
    still = _no_op(30.0, 25.0, INLINE_NO_OP)
    found = overhead(
        [trial(NOTHING, lambda name, index: still(name, index) * (1 + index % 2))], NO_OP, INLINE_NO_OP
    )
    assert found is not None
    assert sorted(round(ns) for ns in found.by_set_ns) == [5] * 10 + [10] * 10
