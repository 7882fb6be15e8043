"""The judge: refusals are counted by check, and what fails the command."""

from __future__ import annotations

from attnbench_selftest.judge import Judged, Outcome, count, registry
from attnbench_selftest.judge_plan import BRIEF, plan
from attnbench_selftest.mutants import MUTANTS
from attnbench_selftest.tables import judge_markdown, judge_text

from attnbench.cases.ids import parse_case

RIGHT = next(mutant for mutant in MUTANTS if mutant.right)
ONE, TWO = [mutant for mutant in MUTANTS if not mutant.right][:2]
FACTS = {
    "date": "2026-01-01", "seeds": [1], "without": [], "verdicts": 3, "wall_s": 2.0, "cpu": "some",
    "cores": 2, "torch": "2", "load_before": 0.1, "load_after": 0.2,
}  # fmt: skip


def outcome(name: str, *caught: str, status: str = "", seed: int = 1) -> Outcome:
    return Outcome(name, "case", seed, False, status or ("mismatch" if caught else "ok"), caught, "why")


ALL_WELL = (
    outcome(RIGHT.backend_name),
    outcome(ONE.backend_name, "reference on normal", "reference on large_logits"),
    outcome(TWO.backend_name, "reference on large_logits"),
)


def found(*outcomes: Outcome) -> Judged:
    return count((RIGHT, ONE, TWO), outcomes)


def test_checks_are_counted_and_what_only_one_refuses() -> None:
    checks = {check.check: check for check in found(*ALL_WELL).checks}
    assert set(checks["reference on large_logits"].kills) == {ONE.backend_name, TWO.backend_name}
    assert checks["reference on large_logits"].alone == (TWO.backend_name,)
    assert checks["reference on normal"].alone == ()


def test_a_survivor_a_refused_right_one_and_one_never_asked_each_fail() -> None:
    assert found(*ALL_WELL).fine
    assert not found(*ALL_WELL, outcome(ONE.backend_name, seed=2)).fine
    assert not found(*ALL_WELL, outcome(RIGHT.backend_name, status="error")).fine
    assert found(*ALL_WELL[:2]).unasked == (TWO.backend_name,)
    crashed = found(*ALL_WELL[:2], outcome(TWO.backend_name, "crashed", status="crashed"))
    assert [(kill.refused, kill.failed) for kill in crashed.survivors] == [(0, 1)]


def test_only_coarse_arithmetic_is_refused_as_inaccurate() -> None:
    coarse = next(mutant for mutant in MUTANTS if mutant.name == "values_in_bfloat16")
    inaccurate = [outcome(one.backend_name, "x", status="inaccurate") for one in (coarse, ONE)]
    kills = {kill.mutant: kill for kill in count((coarse, ONE), inaccurate).kills}
    assert (kills[coarse.backend_name].refused, kills[ONE.backend_name].refused) == (1, 0)
    assert not count((RIGHT,), [outcome(RIGHT.backend_name, "x", status="inaccurate")]).fine


def test_tables_name_what_failed() -> None:
    bad = found(*ALL_WELL, outcome(RIGHT.backend_name, "x"), outcome(TWO.backend_name, seed=2))
    text = judge_text(bad, FACTS, width=200, colour=False)
    assert f"NOT REFUSED: {TWO.backend_name}" in text
    assert f"REFUSED THOUGH RIGHT: {RIGHT.backend_name} on case: mismatch: why" in text
    assert bad.last_line.startswith("selftest judge: FAILED: 1 of 2 wrong backends refused in 2 seeds")
    assert f"| {ONE.name} |" in judge_markdown(bad, FACTS)


def test_on_a_gpu_all_cases_are_there_and_no_mutant_that_reads_memory_by_address() -> None:
    rules = {name: entry.record for name, entry in registry().rules.items()}
    rounds = plan(MUTANTS, rules, 1, BRIEF, "cuda")
    asked = {name for one in rounds for names in one.mutants.values() for name in names}
    assert {parse_case(case).device for one in rounds for case in one.mutants} == {"cuda"}
    assert {mutant.name for mutant in MUTANTS if mutant.backend_name not in asked} == {
        "reads_past_the_end", "reads_before_the_start",
    }  # fmt: skip
