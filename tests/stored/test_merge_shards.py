"""What merging says of shards: missing, cut off, measured twice, unlike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_sides import CASES
from run_files import write_records

import attnbench
from attnbench.cases.select import shard_number
from attnbench.cli import attnbench as command
from attnbench.types.record import PluginLine, Record, Shard

OF = 3
NUMBERS = sorted({shard_number(case, OF) for case in CASES})
Store = Callable[..., Path]
Warnings = Callable[[], list[str]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store a shard; the changes are of its manifest."""

    def write(number: int, *, finished: bool = True, **changes: Any) -> Path:
        facts = {
            "run_id": f"r{number}", "started": f"2026-01-01T00:00:0{number}+00:00", "backends": ["eager"],
            "cases": [case for case in CASES if shard_number(case, OF) == number],
            "protocol": {"repetitions": 9}, "environment": {"cpu": "x", "torch": "2.9"},
            "shard": Shard(number, OF, CASES),
        }  # fmt: skip
        facts |= changes
        cases = facts["cases"] if finished else ()
        records = [Record(case, "dot", "eager", "unsupported", reason="why") for case in cases]
        folder = tmp_path / "shards"
        folder.mkdir(exist_ok=True)
        return write_records(folder / f"{facts['run_id']}.jsonl", *records, finished=finished, **facts)

    return write


@pytest.fixture
def warnings(tmp_path: Path) -> Warnings:
    """The warnings of a merge of all that is stored, which always writes its file."""

    def merged() -> list[str]:
        words = ["--quiet", "merge", str(tmp_path / "shards"), "--out", str(tmp_path / "all.jsonl")]
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output
        assert (tmp_path / "all.jsonl").exists()
        return done.stderr.splitlines()

    return merged


def test_all_shards_that_have_cases_are_enough(store: Store, warnings: Warnings) -> None:
    assert len(NUMBERS) == 2, "one shard is empty"
    for number in NUMBERS:
        store(number)
    assert warnings() == []


def test_a_missing_shard_is_named_with_its_cases(store: Store, warnings: Warnings) -> None:
    here, lost = NUMBERS
    store(here)
    (case,) = (case for case in CASES if shard_number(case, OF) == lost)
    assert warnings() == [f"{len(CASES)} cases in 3 shards: missing {lost}/3, with 1 case: {case}"]


def test_a_shard_that_was_cut_off_says_how_to_go_on(store: Store, warnings: Warnings) -> None:
    store(NUMBERS[0])
    cut_off = store(NUMBERS[1], finished=False)
    (said,) = warnings()
    assert "was cut off, 1 of its records are missing" in said
    assert f"attnbench run --resume {cut_off}" in said


def test_a_shard_that_was_measured_twice_is_named(store: Store, warnings: Warnings) -> None:
    for number in NUMBERS:
        store(number)
    store(NUMBERS[0], run_id="again")
    (said,) = warnings()
    assert said.startswith(f"{len(CASES)} cases in 3 shards: {NUMBERS[0]}/3 was measured 2 times")
    assert "again" in said


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"attnbench": "0.2.0"}, "attnbench: 0.1.0 in {}/3; 0.2.0 in {}/3"),
        ({"environment": {"cpu": "x", "torch": "2.10"}}, "torch: 2.9 in {}/3; 2.10 in {}/3"),
        ({"environment": {"cpu": "y", "torch": "2.9"}}, "cpu: x in {}/3; y in {}/3"),
        ({"plugins": [PluginLine("mine", "my-kernel", "1.0")]},
         "plugin mine: not stated in {}/3; my-kernel 1.0 in {}/3"),
        ({"protocol": {"repetitions": 3}}, "protocol repetitions: 9 in {}/3; 3 in {}/3"),
    ],
)  # fmt: skip
def test_unlike_shards_are_named(
    store: Store, warnings: Warnings, changes: dict[str, Any], fact: str
) -> None:
    store(NUMBERS[0])
    store(NUMBERS[1], **changes)
    assert warnings() == [f"{len(CASES)} cases in 3 shards: unlike in {fact.format(*NUMBERS)}"]


def test_shards_of_several_selections_are_told_apart(store: Store, warnings: Warnings) -> None:
    for number in NUMBERS:
        store(number)
    store(1, run_id="whole", cases=CASES, shard=Shard(1, 1, CASES))
    assert warnings() == [
        f"the shards are not of one selection: 2 cases ({NUMBERS[0]}/3, {NUMBERS[1]}/3); 2 cases (1/1)"
    ]


def test_other_runs_are_left_alone(store: Store, warnings: Warnings) -> None:
    store(NUMBERS[0], shard=None, finished=False)
    store(NUMBERS[1], shard=None, attnbench="0.2.0")
    assert warnings() == []


def test_a_named_backend_that_succeeds_nowhere_counts_in_a_shard_too(store: Store) -> None:
    in_part = store(NUMBERS[0], run_id="part", named=["eager"])
    in_all = store(NUMBERS[0], run_id="all", named=["eager"], shard=None)
    assert attnbench.load(in_part).exit_code == 3
    assert attnbench.load(in_all).exit_code == 3
