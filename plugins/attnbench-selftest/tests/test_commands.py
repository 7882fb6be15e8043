"""The commands from end to end, with as little work as they can be given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from attnbench_selftest import judge as judging
from attnbench_selftest.cli import command
from attnbench_selftest.judge_plan import TIMED, Extent, Round
from attnbench_selftest.mutants.mutant import Mutant
from click.testing import CliRunner, Result

from attnbench.cases.ids import case_id, parse_case
from attnbench.types.rule import Rule

SMALL = "attention/scaled_dot/B1-H2-L9-D8/causal"


def invoke(*words: str) -> Result:
    return CliRunner().invoke(command, words, catch_exceptions=False)


def test_identical_backends_are_scored(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    words = (
        "--length",
        "16",
        "--trials",
        "1",
        "--repetitions",
        "2",
        "--budget",
        "0.05",
        "--json",
        str(found),
    )
    result = invoke("aa", *words)
    assert result.exit_code in (0, 1), result.output
    assert "selftest aa: " in result.output
    stored = json.loads(found.read_text())
    assert stored["selftest"] == "aa"
    assert stored["refuted"] is bool(result.exit_code)
    assert not stored["interrupted"]


@pytest.mark.parametrize("name", ["aa", "power", "judge"])
def test_each_command_explains_itself(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"attnbench selftest {name}" in result.output


# A cache that compares a few elements, and copies only in calls without a pause, is right in every checked
# call. Only the time of a call on repeated inputs shows it.
ASKED = ("wrong_answers_by_nine_elements", "wrong_last_answer_in_a_turn", "right_plain")


def few(
    mutants: Sequence[Mutant], rules: dict[str, Rule], seed: int, extent: Extent, device: str
) -> tuple[Round, ...]:
    timed, checked = parse_case(TIMED[0]), parse_case(SMALL)
    return (
        Round((timed,), {case_id(timed): ASKED}, timed=True),
        Round((checked,), {case_id(checked): ("wrong_causal_ignored", "right_plain")}, timed=False),
    )


# The runner leaves the sockets of a refused backend's worker to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_judge_refuses_wrong_backends_and_no_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "plan", few)
    names = (name.partition("_")[2] for name in (*ASKED, "wrong_causal_ignored"))
    only = [word for name in names for word in ("--only", name)]
    result = invoke("judge", "--first", "5", *only, "--json", str(tmp_path / "judged.json"))
    written = json.loads((tmp_path / "judged.json").read_text())
    caught = {outcome["mutant"]: outcome["caught"] for outcome in written["outcomes"]}
    assert caught["wrong_answers_by_nine_elements"] == ["kept_answers"]
    assert caught["wrong_last_answer_in_a_turn"]
    assert caught["right_plain"] == []
    assert written["facts"]["seeds"] == [5]
    assert result.output.rstrip().endswith("3 of 3 wrong backends refused in 1 seed, 0 of 1 right ones")
    assert result.exit_code == 0
