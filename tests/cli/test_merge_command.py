"""``attnbench merge``: what it says, and what report says of its file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.results.format import RunWriter
from attnbench.types.record import EndLine, Manifest, Record

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"


def stored(name: str, cpu: str, *, finished: bool = True, torn: bytes = b"") -> Path:
    manifest = Manifest(
        format=1, run_id=name, started=f"2026-01-01T00:00:0{len(cpu)}+00:00", attnbench="0.1.0", command=[],
        cases=[CASE], backends=["eager"], named=[], compiled_on=None, protocol={}, plugins=[],
        environment={"cpu": cpu},
    )  # fmt: skip
    path = Path(f"{name}.jsonl")
    with RunWriter.create(path, manifest) as writer:
        writer.append(Record(CASE, "dot", "eager", "ok", median_ms=1.5))
        if finished:
            writer.append(EndLine("2026-01-01T00:01:00+00:00", 60.0, {}))
    with path.open("ab") as file:
        file.write(torn)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_says_what_it_merged_and_what_it_left_out(invoke: Callable[..., Result]) -> None:
    stored("a", "Zen")
    stored("b", "Xeon", finished=False, torn=b"{")
    Path("folder").mkdir()
    Path("folder/a2.jsonl").write_bytes(Path("a.jsonl").read_bytes())
    result = invoke("merge", "b.jsonl", "a.jsonl", "folder", "--out", "new/both.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "b.jsonl: its last line was cut off and is left out",
        "folder/a2.jsonl: the run a is also in a.jsonl, and is kept once",
        "a: Zen, 1 record",
        "b: Xeon, 1 record, cut off",
        "stored in new/both.jsonl",
    ]


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_of_several_runs_each_row_says_which_it_is_of(invoke: Callable[..., Result], format_: str) -> None:
    stored("a", "Zen")
    stored("b", "Xeon")
    invoke("merge", "a.jsonl", "b.jsonl", "--out", "both.jsonl")
    text = invoke("report", "both.jsonl", "--format", format_).stdout
    rows = json.loads(text) if format_ == "json" else list(csv.DictReader(text.splitlines()))
    assert [(row["run"], row["backend"]) for row in rows] == [("a", "eager"), ("b", "eager")]
    assert invoke("report", "both.jsonl").stdout.count("both.jsonl: 2026-01-01T00:00:0") == 2


def test_going_on_with_a_merged_file_is_refused(invoke: Callable[..., Result]) -> None:
    stored("a", "Zen")
    stored("b", "Xeon")
    invoke("merge", "a.jsonl", "b.jsonl", "--out", "both.jsonl")
    for command in ("run", "check"):
        result = invoke(command, "--resume", "both.jsonl")
        assert result.exit_code == 2
        assert "'both.jsonl' holds 2 merged runs: " in result.stderr
