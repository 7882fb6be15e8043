"""Files that run and report write beside their records: pytest-benchmark's JSON, Markdown, a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

import attnbench.api
from attnbench.results.format import RunWriter
from attnbench.types.record import Block, CaseLine, EndLine, Manifest, Record, SetLine

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
MANIFEST = Manifest(
    format=1, run_id="r", started="2026-01-01T00:00:00+00:00", attnbench="0.1.0", command=[], cases=[CASE],
    backends=["eager", "bmm"], named=[], compiled_on=None, protocol={}, plugins=[],
    environment={"cpu": "Zen"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stored(name: str, *sets: SetLine) -> Path:
    path = Path(f"{name}.jsonl")
    with RunWriter.create(path, msgspec.structs.replace(MANIFEST, run_id=name)) as writer:
        if sets:
            writer.append(CaseLine(CASE, 1, 1, 128, 1.0, 1.0, {}))
        for line in sets:
            writer.append(line)
        writer.append(Record(CASE, "dot", "eager", "ok", ratio=1.0, baseline="eager"))
        writer.append(Record(CASE, "dot", "bmm", "unsupported", reason="no masks yet"))
        writer.append(EndLine("2026-01-01T00:01:00+00:00", 60.0, {}))
    return path


def one_set(index: int, *wall_ns: int) -> SetLine:
    """A set in which eager was called twice in each sample."""
    none = [0] * len(wall_ns)
    block = Block(0, list(range(len(wall_ns))), 2, list(wall_ns), none, none, none, none)
    return SetLine(CASE, index, [0], ["eager"], {}, {"eager": [block]}, ["eager"], {})


def test_a_run_is_written_as_the_medians_of_its_processes(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored("run", one_set(0, 2000, 4000, 9000), one_set(1, 6000))
    monkeypatch.setattr(attnbench.api, "start", lambda *_: attnbench.api.load(path))
    result = invoke("run", CASE, "--benchmark-json", "bench.json", "--format", "json")
    assert [row["backend"] for row in json.loads(result.stdout)] == ["eager", "bmm"]
    assert result.exit_code == 0, result.stderr
    data = json.loads(Path("bench.json").read_text())
    (one,) = data["benchmarks"]
    assert (one["group"], one["name"]) == (CASE, "eager")
    assert one["stats"]["data"] == pytest.approx([2e-6, 3e-6])
    assert one["extra_info"]["ratio"] == 1.0
    (other,) = data["attnbench"]["left_out"]
    assert (other["backend"], other["status"], other["reason"]) == ("bmm", "unsupported", "no masks yet")
    assert result.stderr.endswith(
        "1 benchmark written to bench.json\nleft out, with their reasons in the file: 1 unsupported\n"
    )


def test_a_file_that_can_not_be_written_is_said_before_anything_is_measured(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnbench.api, "start", lambda *_: pytest.fail("it was measured"))
    for words in (["run", CASE], ["run", "--resume", str(stored("a"))]):
        result = invoke(*words, "--benchmark-json", "a/b.json")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == "attnbench: there is no folder 'a'; make it, or name another file\n"


def test_a_run_that_was_gone_on_with_is_written_too(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnbench.api, "go_on", lambda path, *_: attnbench.api.load(path))
    assert invoke("run", "--resume", str(stored("a")), "--benchmark-json", "bench.json").exit_code == 0
    assert Path("bench.json").exists()
