"""Counting what the judge refused: by mutant, by check, and what fails the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attnbench_selftest.judge import Finding, merged, read_finding, write_finding
from attnbench_selftest.tables import judge_markdown, judge_tables, last_line
from attnbench_selftest.judge import Judged, Outcome, judged
from attnbench_selftest.mutants import MUTANTS
from attnbench.types.errors import BadFile

RIGHT = next(mutant for mutant in MUTANTS if mutant.right)
ONE, TWO = [mutant for mutant in MUTANTS if not mutant.right][:2]
FACTS = {
    "date": "2026-01-01", "seeds": [1], "without": [], "verdicts": 3, "wall_s": 2.0, "cpu": "some",
    "cores": 2, "torch": "2", "load_before": 0.1, "load_after": 0.2,
}  # fmt: skip


def outcome(name: str, *caught: str, status: str = "", seed: int = 1) -> Outcome:
    return Outcome(name, "case", seed, False, status or ("mismatch" if caught else "ok"), caught, "why")


def found(*outcomes: Outcome) -> Judged:
    return judged((RIGHT, ONE, TWO), outcomes)


ALL_WELL = (
    outcome(RIGHT.backend_name),
    outcome(ONE.backend_name, "normal", "near:loud"),
    outcome(ONE.backend_name),
    outcome(TWO.backend_name, "near:loud"),
)


def test_one_refusal_in_a_seed_is_enough_and_all_seeds_count() -> None:
    assert found(*ALL_WELL).fine
    later = found(*ALL_WELL, outcome(ONE.backend_name, seed=2))
    assert [(kill.mutant, kill.survived) for kill in later.survivors] == [(ONE.backend_name, (2,))]
    assert not later.fine


def test_what_a_check_refuses_and_what_only_it_does() -> None:
    worths = {worth.check: worth for worth in found(*ALL_WELL).worths}
    assert set(worths["loud"].kills) == {ONE.backend_name, TWO.backend_name}
    assert worths["loud"].alone == (TWO.backend_name,)
    assert set(worths["loud"].nearby) == {ONE.backend_name, TWO.backend_name}
    assert (worths["normal"].kills, worths["normal"].alone, worths["normal"].nearby) == (
        (ONE.backend_name,),
        (),
        (),
    )


def test_other_refusals_of_an_mutant_are_not_forgotten() -> None:
    worths = {worth.check: worth for worth in found(*ALL_WELL, outcome(TWO.backend_name, "state")).worths}
    assert worths["loud"].alone == ()
    assert worths["state"].alone == ()


@pytest.mark.parametrize("status", ["crashed", "error", "timeout", "out_of_memory"])
def test_what_falls_by_itself_is_not_refused_by_the_judge(status: str) -> None:
    counted = found(*ALL_WELL[:3], outcome(TWO.backend_name, status, status=status))
    (kill,) = counted.survivors
    assert (kill.mutant, kill.refused, kill.fell) == (TWO.backend_name, 0, 1)


@pytest.mark.parametrize("status", ["mismatch", "suspect", "error", "crashed"])
def test_a_right_one_must_be_ok_everywhere(status: str) -> None:
    counted = found(*ALL_WELL, outcome(RIGHT.backend_name, "x", status=status))
    assert not counted.fine
    assert [o.mutant for o in counted.wronged] == [RIGHT.backend_name]
    assert (counted.right, counted.right_verdicts) == (1, 2)


def test_who_supports_no_case_is_told() -> None:
    counted = found(*ALL_WELL[:3], outcome(TWO.backend_name, status="unsupported"))
    assert counted.unasked == (TWO.backend_name,)
    assert not counted.fine


def test_tables_say_what_is_amiss() -> None:
    bad = found(*ALL_WELL, outcome(RIGHT.backend_name, "loud"), outcome(TWO.backend_name, seed=2))
    text = judge_tables(bad, FACTS, width=200)
    assert f"NOT REFUSED: {TWO.backend_name}" in text
    assert f"REFUSED THOUGH RIGHT: {RIGHT.backend_name} on case: mismatch: why" in text
    assert last_line(bad).startswith("selftest judge: FAILED: 1 of 2 wrong backends refused in 2 seeds")
    well = judge_tables(found(*ALL_WELL), FACTS, width=200)
    assert "REFUSED" not in well
    assert last_line(found(*ALL_WELL)) == (
        "selftest judge: 2 of 2 wrong backends refused in 1 seed, 0 of 1 right ones"
    )


def test_markdown_has_a_row_for_each() -> None:
    text = judge_markdown(found(*ALL_WELL), FACTS)
    for mutant in (ONE, TWO):
        assert text.count(f"| {mutant.name} |") >= 1


def test_what_is_written_is_read_and_merged(tmp_path: Path) -> None:
    first = Finding(ALL_WELL, FACTS)
    write_finding(tmp_path / "a.json", first, "fine")
    assert json.loads((tmp_path / "a.json").read_text())["facts"] == FACTS
    again = read_finding(tmp_path / "a.json")
    assert again == first
    second = Finding(tuple(replace(o, seed=2) for o in ALL_WELL), {**FACTS, "seeds": [2], "wall_s": 3.0})
    both = merged([again, second])
    assert both.facts["seeds"] == [1, 2]
    assert both.facts["wall_s"] == 5.0
    assert both.outcomes == (*first.outcomes, *second.outcomes)


def test_what_it_did_not_write_it_does_not_read(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"outcomes": 3}')
    with pytest.raises(BadFile, match="holds nothing that selftest judge wrote"):
        read_finding(tmp_path / "other.json")
