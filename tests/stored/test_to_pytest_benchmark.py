"""What is written in the format of pytest-benchmark: its own tools open it, and nothing of it is lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import CASES, GOLDEN, golden, measured, ok, run_of
from pytest_benchmark.stats import Stats

from attnbench.results.pytest_benchmark import read_pytest_benchmark
from attnbench.results.to_pytest_benchmark import (  # fmt: skip
    check_target,
    is_benchmark,
    stats_of,
    to_pytest_benchmark,
    write_pytest_benchmark,
)
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadInput


@given(run=measured())
def test_reading_gives_back_what_was_written(run: Measured) -> None:
    data = json.loads(json.dumps(to_pytest_benchmark(run), allow_nan=False))
    again = read_pytest_benchmark(run.path, data)
    assert {cell.key: cell for cell in again.cells} == {cell.key: cell for cell in run.cells}
    nothing = () if run.cells else (f"{run.path}: holds no benchmarks",)
    assert replace(again, cells=run.cells) == replace(run, problems=(*nothing, *run.problems))


@given(run=measured())
def test_what_is_ok_and_timed_is_a_benchmark_and_all_else_is_listed(run: Measured) -> None:
    data = to_pytest_benchmark(run)
    names = [(one["group"], one["name"]) for one in data["benchmarks"]]
    assert names == [cell.key for cell in run.cells if cell.status == "ok" and cell.processes_ns]
    listed = [(one["case"], one["backend"]) for one in data["attnbench"]["left_out"]]
    assert sorted(names + listed) == sorted(cell.key for cell in run.cells)
    for one, cell in zip(data["benchmarks"], filter(is_benchmark, run.cells), strict=True):
        assert one["stats"]["median"] == pytest.approx(median(cell.processes_ns) / 1e9)
        assert one["stats"]["rounds"] == len(cell.processes_ns)


def test_the_fields_are_those_that_pytest_benchmark_writes_itself() -> None:
    theirs = golden("v5-json.json")
    ours = to_pytest_benchmark(run_of(ok("eager", 1.0, 2.0)))
    assert ours.keys() - theirs.keys() == {"attnbench"}
    assert theirs.keys() <= ours.keys()
    (one,) = ours["benchmarks"]
    assert one.keys() == theirs["benchmarks"][0].keys()
    assert one["stats"].keys() == theirs["benchmarks"][0]["stats"].keys()
    assert ours["commit_info"].keys() == theirs["commit_info"].keys()
    assert one["fullname"] == f"{CASES[0]}[eager]"


@given(times=st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=30))
def test_stats_are_those_of_pytest_benchmark(times: list[float]) -> None:
    theirs = Stats()
    theirs.data = list(times)
    ours = stats_of(times)
    for name in ("min", "max", "mean", "stddev", "rounds", "median", "ops", "total"):
        assert ours[name] == pytest.approx(getattr(theirs, name), rel=1e-6, abs=1e-12), name
    assert ours["data"] == times
    low, *middle, high = (ours[name] for name in ("min", "q1", "median", "q3", "max"))
    assert all(low * (1 - 1e-9) <= value <= high * (1 + 1e-9) for value in middle)
    assert ours["iqr"] == ours["q3"] - ours["q1"]
    assert ours["outliers"] == f"{ours['stddev_outliers']};{ours['iqr_outliers']}"
    inside = [time for time in times if ours["ld15iqr"] <= time <= ours["hd15iqr"]]
    assert len(inside) == len(times) - ours["iqr_outliers"]


def test_stats_of_known_times() -> None:
    found = stats_of([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (found["q1"], found["median"], found["q3"], found["iqr"]) == (2.0, 3.0, 4.0, 2.0)
    assert (found["iqr_outliers"], found["ld15iqr"], found["hd15iqr"]) == (1, 1.0, 4.0)
    assert found["outliers"] == "1;1"


def compare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``pytest-benchmark compare`` of the installed version."""
    script = Path(sys.executable).with_name("pytest-benchmark")
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [script, "compare", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_pytest_benchmark_compare_opens_our_files(tmp_path: Path) -> None:
    other = CASES[1]
    fast = run_of(ok("eager", 1.0, 1.1, 1.2), ok("bmm", 2.0, 2.0, 2.0), ok("eager", 5.0, case=other))
    slow = run_of(ok("eager", 2.0, 2.2, 2.4), Cell(CASES[0], "dot", "bmm", "crashed", reason="signal 11"))
    write_pytest_benchmark(fast, tmp_path / "fast.json")
    write_pytest_benchmark(slow, tmp_path / "slow.json")
    done = compare(tmp_path, "fast.json", "slow.json", "--columns=median,rounds,outliers,ops", "--sort=name")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    heads = [line.strip("- ") for line in done.stdout.splitlines() if "benchmark '" in line]
    assert heads == [f"benchmark {CASES[0]!r}: 3 tests", f"benchmark {other!r}: 1 tests"]
    rows = [line.split()[:3] for line in done.stdout.splitlines() if line.startswith(("eager", "bmm"))]
    assert rows == [
        ["bmm", "(fast)", "2.0000"], ["eager", "(fast)", "1.1000"], ["eager", "(slow)", "2.2000"],
        ["eager", "(fast)", "5.0000"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [["--group-by=func"], ["--group-by=fullname"], ["--group-by=param:backend"], ["--between=median"]],
)
def test_its_ways_to_group_have_what_they_need(tmp_path: Path, words: list[str]) -> None:
    for name, ms in (("one", 1.0), ("two", 1.5)):
        write_pytest_benchmark(run_of(ok("eager", ms), ok("bmm", 2 * ms)), tmp_path / f"{name}.json")
    done = compare(tmp_path, "one.json", "two.json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "eager" in done.stdout
    if words == ["--between=median"]:
        assert done.stdout.count("+50.0%") == 2


def test_beside_a_file_of_its_own(tmp_path: Path) -> None:
    write_pytest_benchmark(run_of(ok("eager", 1.0)), tmp_path / "ours.json")
    shutil.copy(GOLDEN / "v4-save.json", tmp_path / "theirs.json")
    done = compare(tmp_path, "ours.json", "theirs.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "test_sorted[100]" in done.stdout


def test_a_file_of_pytest_benchmark_may_be_overwritten_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write_pytest_benchmark(run_of(ok("eager", 1.0)), path)
    write_pytest_benchmark(run_of(ok("eager", 2.0)), path)
    assert json.loads(path.read_text())["benchmarks"][0]["stats"]["median"] == 0.002
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench.json"]
    for text in ("", '{"kind":"manifest"}\n{"kind":"end"}\n', '{"my": "notes"}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(BadInput, match="exists and is no file of pytest-benchmark; name another file"):
            write_pytest_benchmark(run_of(ok("eager", 1.0)), path)
        assert path.read_text() == text


def test_where_it_can_not_be_written_is_said_beforehand(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder; name a file"):
        check_target(tmp_path)
    with pytest.raises(BadInput, match="there is no folder"):
        check_target(tmp_path / "nowhere" / "bench.json")
    check_target(tmp_path / "bench.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bench.json"
    write_pytest_benchmark(run_of(ok("eager", 1.0)), path)
    old = path.read_bytes()

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left on device"):
        write_pytest_benchmark(run_of(ok("eager", 2.0)), path)
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench.json"]
