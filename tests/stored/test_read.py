"""Runs read from files and folders: their cells, their facts, and sentences for what is damaged."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
from made_sides import ENVIRONMENT, LONG, SHORT, run_lines, times, write_benchmarks, write_run
from msgspec.structs import replace

from attnbench.api import load
from attnbench.results.format import read_run
from attnbench.results.read import read_ours, read_side
from attnbench.stats.records import summarise
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadFile

RUNS = Path(__file__).parents[1] / "runs"


def read(path: Path) -> Measured:
    (run,) = read_ours(path)
    return run


def cell_of(path: Path, backend: str = "mine") -> Cell:
    return next(cell for cell in read(path).cells if cell.backend == backend)


def test_a_process_is_the_median_of_a_set(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl")
    run, mine = read(path), cell_of(path)
    assert mine.processes_ns == tuple(round(ns) for ns in times(1e5))
    assert mine.parents == (0, 1, 2) * 3
    assert mine.fingerprint == "256 pairs, 10000 operations, 10000 bytes"
    assert mine.reference_ns == {"gemm_256": (4e5,) * 9, "copy": (4e3,) * 9, "empty": (60.0,) * 9}
    assert (run.origin, run.version, run.commit, run.problems) == ("attnbench", "2", "abc123", ())
    assert cell_of(write_run(tmp_path / "b.jsonl", inputs=2)).fingerprint == mine.fingerprint
    for cell in run.cells:
        timing = summarise(read_run(path).repetitions, cell.backend)
        assert median(cell.processes_ns) / 1e6 == pytest.approx(timing.median_ms)


def test_a_drawn_mask_means_another_case_where_it_is_drawn_by_another_version(tmp_path: Path) -> None:
    drawn = "attention/dot/B1-H1-Lq16-Lk16-D8/bool/float32/cpu/forward"
    cells = {drawn: {"mine": times(1e5)}}
    before, now = (write_run(tmp_path / f"{n}.jsonl", cells=cells, inputs=n) for n in (1, 2))
    assert cell_of(now).fingerprint == f"{cell_of(before).fingerprint}, masks of version 2"


@pytest.mark.parametrize(
    ("plan", "count", "parents"),
    [
        ({"anew": False}, 9, (0,) * 9),
        # Nine repetitions, three processes of three repetitions each.
        ({"anew": False, "fresh": False}, 3, (0, 1, 2)),
    ],
)
def test_processes_count_by_how_they_were_started(
    tmp_path: Path, plan: dict[str, Any], count: int, parents: tuple[int, ...]
) -> None:
    mine = cell_of(write_run(tmp_path / "a.jsonl", candidate=plan))
    taken, each = [round(ns) for ns in times(1e5)], 9 // count
    assert mine.processes_ns == tuple(median(taken[i : i + each]) for i in range(0, 9, each))
    assert mine.parents == parents


def test_the_environment_is_flat_and_has_known_facts_only(tmp_path: Path) -> None:
    stated = {"plugin_facts": {"attnbench-mini": {"turbo": True, "unknown": None, "cpu": "theirs"}}}
    facts = read(write_run(tmp_path / "a.jsonl", environment=stated)).environment
    expected = {
        "torch": "2.6", "numpy": "2.0", "torch.threads": "1", "plugin backends": "attnbench 0.1.0",
        "cpu": ENVIRONMENT["cpu"], "plugin attnbench-mini: turbo": True,
        "plugin attnbench-mini: cpu": "theirs",
    }  # fmt: skip
    assert {name: facts[name] for name in expected} == expected
    left_out = {"governor", "libraries", "torch_flags", "git_commit", "plugin_facts"}
    assert not (left_out | {"plugin attnbench-mini: unknown"}) & facts.keys()


LINES = run_lines()
TWO_CASES = run_lines({SHORT: {"mine": times(1e5)}, LONG: {"mine": times(1e5)}}, ended=False)
LIVE = [replace(LINES[0], sides={"base": {}, "head": {}}), *LINES[1:-1]]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (LINES, ""),
        (
            TWO_CASES[:-11],
            "the run was cut off, 1 of its records are missing; continue with attnbench run --resume",
        ),
        (LIVE, "the run was cut off, 0 of its records are missing; compare again"),
        (run_lines({SHORT: {}}, protocol={"timed": False}), "only checked, not timed"),
    ],
)
def test_what_is_missing_is_a_problem(tmp_path: Path, lines: list[Any], problem: str) -> None:
    path = write_run(tmp_path / "a.jsonl", lines)
    found = read(path).problems
    assert [one[: len(f"{path}: {problem}")] for one in found] == ([f"{path}: {problem}"] if problem else [])


def test_files_and_folders_of_both_formats_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "all" / "deeper"
    inside.mkdir(parents=True)
    write_run(tmp_path / "all" / "a.jsonl")
    write_benchmarks(inside / "0001_b.json", {"test_it": 1e-3})
    (tmp_path / "all" / "notes.txt").write_text("nothing of ours")
    found = read_side([tmp_path / "all"])
    assert [run.origin for run in found] == ["attnbench", "pytest-benchmark"]
    assert read_side([write_run(tmp_path / "run.json")])[0].origin == "attnbench"


def test_a_run_counts_once_and_its_fullest_copy_is_taken(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole.jsonl")
    (tmp_path / "link.jsonl").symlink_to(whole)
    assert len(read_side([whole, whole, tmp_path / "link.jsonl"])) == 1
    part = write_run(tmp_path / "part.jsonl", LINES[:-3])
    for order in ([part, whole], [whole, part]):
        (run,) = read_side(order)
        assert (run.path, len(run.cells)) == (whole, 5)
        assert run.problems == (f"{part}: the run run is also in {whole}, and counts once",)
    nameless = [write_benchmarks(tmp_path / name, {"test_it": 1e-3}) for name in ("a.json", "b.json")]
    assert len(read_side(nameless)) == 2


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.json", b"[1, 2]", "is neither a run of attnbench nor JSON of pytest-benchmark"),
        ("a.txt", b"\xff\xfe", "is neither a run of attnbench nor JSON of pytest-benchmark ("),
        ("a.json", b'{"benchmarks": 3}', "is neither a run of attnbench nor JSON of pytest-benchmark"),
        ("a.json", b"[" * 100_000, "is neither a run of attnbench nor JSON of pytest-benchmark ("),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFile) as refused:
        read_side([tmp_path / name])
    assert sentence in str(refused.value)


def test_a_run_that_holds_its_file_still_goes_on(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    lines = (RUNS / "smoke.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines[:-1]))
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with pytest.warns(UserWarning, match="the run still goes on"):
            run = load(path)
        assert (run.going, "still going" in repr(run)) == ((path,), True)
    with pytest.warns(UserWarning, match="the run was cut off"):
        run = load(path)
    assert (run.going, run.unfinished) == ((), (path,))
