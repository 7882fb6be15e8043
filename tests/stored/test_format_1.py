"""Files of format 1 are read in the words of format 2, with the same numbers. results/ has some."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_sides import write_run
from msgspec.structs import replace

from attnbench.cli import attnbench
from attnbench.results.digest import digested
from attnbench.results.format import RunWriter, read_run, read_runs
from attnbench.results.pytest_benchmark import read_pytest_benchmark, write_pytest_benchmark
from attnbench.results.read import read_ours
from attnbench.stats.records import not_derived
from attnbench.types.errors import BadFile

RUNS = Path(__file__).parents[1] / "runs"
OLD = RUNS / "bert-base.jsonl"


def in_old_words(protocol: dict[str, Any]) -> dict[str, Any]:
    """A protocol as format 1 has it."""
    old = {"repetitions": "sets", "segments": "stretches", "sample_s": "turn_s"}
    return {old.get(key, key): value for key, value in protocol.items()}


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """The old run, written in format 2."""
    stored, path = read_run(OLD), tmp_path / OLD.name
    with RunWriter.create(path, replace(stored.manifest, format=2)) as writer:
        for line in (*stored.cases, *stored.repetitions, *stored.records, stored.finished):
            assert line is not None
            writer.append(line)
    return path


def printed(*words: str) -> str:
    found = CliRunner().invoke(attnbench, words)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.parametrize("name", ["bert-base", "gpt2"])
def test_all_numbers_of_an_old_file_follow_from_its_samples(name: str) -> None:
    run = read_run(RUNS / f"{name}.jsonl")
    assert run.manifest.format == 1
    # The command can be given again.
    assert "--repetitions" in run.manifest.command
    assert "--sets" not in run.manifest.command
    assert all(line.verified_calls and line.transforms for line in run.repetitions)
    assert list(not_derived(run.manifest.protocol, run.cases, run.repetitions, run.records)) == []


def test_an_old_file_and_the_same_in_format_2_give_the_same_report(new: Path) -> None:
    assert b'"format":2' in new.read_bytes()
    for format_ in ("csv", "markdown"):
        assert printed("report", str(new), "--format", format_) == printed(
            "report", str(OLD), "--format", format_
        )


def test_an_old_file_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / OLD.name
    path.write_bytes(OLD.read_bytes())
    found = CliRunner().invoke(attnbench, ["run", "--resume", str(path)])
    assert found.exit_code == 2
    assert "has format 1, and this attnbench goes on in format 2 only: begin anew" in found.stderr
    assert path.read_bytes() == OLD.read_bytes()


def test_both_formats_stand_in_one_merged_file(tmp_path: Path) -> None:
    other, both = write_run(tmp_path / "other.jsonl"), tmp_path / "both.jsonl"
    printed("merge", str(OLD), str(other), "--out", str(both))
    assert both.read_bytes() in (
        OLD.read_bytes() + other.read_bytes(),
        other.read_bytes() + OLD.read_bytes(),
    )
    assert {run.manifest.format: len(run.repetitions) for run in read_runs(both)} == {
        1: len(read_run(OLD).repetitions),
        2: len(read_run(other).repetitions),
    }


def test_the_digest_is_that_of_the_old_words(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(OLD.read_bytes().replace(b'"stretch":1', b'"segment":1', 1))
    with pytest.raises(BadFile, match="changed or written anew by another program"):
        read_run(path)


@pytest.mark.parametrize("odd", [[], {}, 1, None, "x", [[1]], {"eager": 1}, {"eager": [1]}])
@pytest.mark.parametrize("place", [(0, "protocol"), (1, "contenders"), (2, "blocks"), (3, "kind")])
def test_an_old_line_of_another_form_is_refused_or_read(
    tmp_path: Path, place: tuple[int, str], odd: object
) -> None:
    number, key = place
    lines = {line["kind"]: line for line in map(json.loads, OLD.read_bytes().splitlines())}
    line = lines[("manifest", "case", "set", "record")[number]]
    line[key] = odd
    path = tmp_path / "a.jsonl"
    content = [lines["manifest"]] + ([line] if number else [])
    path.write_bytes(b"".join(digested(json.dumps(each).encode() for each in content)))
    with suppress(BadFile):
        read_runs(path)


def test_settings_in_an_old_file_of_pytest_benchmark_have_the_new_words(tmp_path: Path) -> None:
    (run,) = read_ours(write_run(tmp_path / "a.jsonl"))
    path = tmp_path / "a.json"
    write_pytest_benchmark(run, path)
    now = read_pytest_benchmark(path)
    content = json.loads(path.read_bytes())
    content["attnbench"]["format"] = "1"
    content["attnbench"]["protocol"] = in_old_words(now.protocol)
    assert content["attnbench"]["protocol"] != now.protocol
    path.write_text(json.dumps(content))
    assert read_pytest_benchmark(path) == now


def test_names_of_inputs_are_the_new_ones(tmp_path: Path) -> None:
    head = json.loads(OLD.read_bytes().splitlines()[0])
    head["protocol"]["without"] = ["near", "canaries", "loud", "deep_change", "weights", "renewal"]
    record = {
        "kind": "record", "case": head["cases"][0], "rule": "scaled_dot", "backend": head["backends"][0],
        "status": "mismatch",
        "failed_on": ["normal", "near:loud", "near:normal", "quiet", "one_key", "dropout"],
    }  # fmt: skip
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(digested(json.dumps(each).encode() for each in (head, record))))
    run = read_run(path)
    (found,) = run.records
    assert found.failed_on == [
        "normal", "variant:large_logits", "variant:normal", "unlikely_values", "one_hot", "dropout",
    ]  # fmt: skip
    assert run.manifest.protocol["without"] == [
        "variant_case", "trivial_answers", "large_logits", "near_duplicate", "weights", "refreshed",
    ]  # fmt: skip
