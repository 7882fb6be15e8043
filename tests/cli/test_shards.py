"""``--shard`` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import shard_number

CASE = "attention/dot/H1-L8-D4"


def planned(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [row["case"] for row in json.loads(result.stdout)] if result.stdout else []


@pytest.mark.parametrize("command", ["run", "check"])
def test_the_shards_of_a_suite_make_up_its_plan(invoke: Callable[..., Result], command: str) -> None:
    words = (command, "smoke", "--plan", "--format", "json", "--shard")
    whole = planned(invoke(*words, "1/1"))
    parts = [planned(invoke(*words, f"{number}/4")) for number in range(1, 5)]
    assert len(whole) == 12
    assert sorted(case for part in parts for case in part) == sorted(whole)
    assert max(map(len, parts)) < 12


def test_an_empty_shard_is_fine_and_writes_nothing(invoke: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "results"
    number = 3 - shard_number(case_id(parse_case(CASE)), 2)
    result = invoke("run", CASE, "--shard", f"{number}/2", "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"shard {number}/2: 0 of 1 case; nothing to run, and no file is written\n"
    assert not out.exists()


def test_a_choice_of_places_needs_an_executor(invoke: Callable[..., Result]) -> None:
    result = invoke("run", CASE, "--where", "gpu=H100")
    assert result.exit_code == 2
    assert "--where and --each need --on" in result.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_chosen_cases_of_a_suite_are_kept_alone(invoke: Callable[..., Result], command: str) -> None:
    whole = planned(invoke(command, "smoke", "--plan", "--format", "json"))
    kept = ("--case", whole[3], "--case", whole[1])
    assert planned(invoke(command, "smoke", *kept, "--plan", "--format", "json")) == [whole[1], whole[3]]
    refused = invoke(command, "smoke", "--case", CASE, "--plan")
    assert refused.exit_code == 2
    assert f"no case '{case_id(parse_case(CASE))}' is selected" in refused.stderr
