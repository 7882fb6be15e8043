"""Files of pytest-benchmark: reading those of both tools, and writing files that its own tools open."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_sides import CASES, GOLDEN, golden, measured, ok, side
from pytest_benchmark.stats import Stats

from attnbench.results.pytest_benchmark import (
    read_pytest_benchmark,
    stats_of,
    to_pytest_benchmark,
    write_pytest_benchmark,
)
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadFile, BadInput

FILES = sorted(path.name for path in GOLDEN.glob("*.json"))
CASE = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"


def read(data: Any) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.json"
        path.write_text(json.dumps(data))
        return read_pytest_benchmark(path)


@pytest.mark.parametrize("name", FILES)
def test_files_of_both_versions_are_read(name: str) -> None:
    data = golden(name)
    run = read(data)
    assert [cell.key for cell in run.cells] == [
        ("test_tiny.py::test_sum", ""),
        ("test_tiny.py::test_sorted[10]", ""),
        ("test_tiny.py::test_sorted[100]", ""),
        (CASE, "eager"),
        (CASE, "bmm"),
        ("test_tiny.py::test_once", ""),
    ]
    assert {cell.status for cell in run.cells} == {"ok"}
    assert [cell.rule for cell in run.cells] == ["", "", "", "dot", "dot", ""]
    for cell, benchmark in zip(run.cells, data["benchmarks"], strict=True):
        stats = benchmark["stats"]
        assert cell.processes_ns == (stats["median"] * 1e9,)
        assert cell.calls_ns == tuple(1e9 * stats[key] for key in ("min", "q1", "median", "q3", "max"))
    assert run.origin == "pytest-benchmark"
    assert run.version == {"v4": "4.0.0", "v5": "5.3.1"}[name[:2]]
    assert run.problems == ()
    assert run.commit == "29d97642b20b9b70d9b03616ab8c5c81ec066cea"
    assert re.fullmatch(r"2026-11-22T01:31:\d\d\+00:00", run.started)
    assert run.environment == {
        "cpu": "AMD EPYC",
        "cpu_count": 2,
        "python": "3.11.7",
        "system": "Linux 6.18.44-fc-v595 x86_64",
        "python_compiler": "GCC 12.2.0",
        "python_implementation": "CPython",
        "python_implementation_version": "3.11.7",
    }
    assert run.protocol["timer"] == "perf_counter"
    assert run.protocol["min_rounds"] == 5


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"datetime": "2026-01-02T03:04:05.678"}, "started", "2026-01-02T03:04:05+00:00"),
        ({"datetime": "2026-01-02T05:04:05+02:00"}, "started", "2026-01-02T03:04:05+00:00"),
        ({"datetime": "yesterday"}, "started", "yesterday"),
        ({"commit_info": {"id": "abc", "dirty": True}}, "commit", "abc-dirty"),
        ({"commit_info": {"id": "unversioned", "dirty": False}}, "commit", ""),
        ({"commit_info": {"id": "unknown", "error": "CalledProcessError"}}, "commit", ""),
        ({"commit_info": {}}, "commit", ""),
        ({"machine_info": {"processor": "i386", "cpu": None}}, "environment", {"cpu": "i386"}),
        (
            {"machine_info": {"node": "runner-17", "torch": "2.6.0", "gpu": {"name": "x"}, "cuda": None}},
            "environment",
            {"torch": "2.6.0"},
        ),
    ],
)
def test_facts_of_a_file(change: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(read(golden("v5-json.json") | change), field) == value


def test_options_that_differ_between_benchmarks_are_marked() -> None:
    data = golden("v5-save.json")
    data["benchmarks"][1]["options"]["timer"] = "process_time"
    assert read(data).protocol["timer"] == "per benchmark"
    assert read(data).protocol["disable_gc"] is False


NAN, INF = float("nan"), float("inf")
MINE = {"case": CASE, "backend": "mine"}


@pytest.mark.parametrize(
    "change",
    [
        *({"median": value} for value in (NAN, INF, 0.0, -1e-6, "fast", True, None, 10**400, 1e9)),
        *({"rounds": value} for value in (0, -3, 2.5)),
        {"min": NAN},
        *({"stats": value} for value in (None, {}, [1, 2], "x")),
        *({"extra_info": MINE | extra} for extra in ({"processes_ns": [10**400]}, {"ratio": 10**400})),
    ],
    ids=lambda change: str(change)[:40],
)
def test_impossible_numbers_damage_their_benchmark_alone(change: dict[str, Any]) -> None:
    data = golden("v5-json.json")
    whole = change.keys() & {"stats", "extra_info"}
    (data["benchmarks"][0] if whole else data["benchmarks"][0]["stats"]).update(change)
    first, *others = read(data).cells
    assert others == [*read(golden("v5-json.json")).cells[1:]]
    assert (first.status, first.processes_ns) == ("error", ())
    assert re.match("its (stats are|extra_info is) damaged: ", first.reason)


def test_rounding_of_quartiles_is_accepted() -> None:
    data, same = golden("v5-json.json"), 1.234567e-05
    stats = dict.fromkeys(("min", "median", "max"), same) | {"q1": same * (1 - 1e-15), "q3": same}
    data["benchmarks"][0]["stats"].update(stats)
    assert read(data).cells[0].processes_ns == (same * 1e9,)


def test_the_status_that_our_pytest_plugin_wrote_counts() -> None:
    data = golden("v5-json.json")
    data["benchmarks"][3]["extra_info"] |= {"status": "mismatch", "reason": "rms error"}
    data["benchmarks"][4]["extra_info"] |= {"status": "splendid"}
    wrong, odd = read(data).cells[3:5]
    assert (wrong.status, wrong.reason, wrong.processes_ns) == ("mismatch", "rms error", ())
    assert (odd.status, odd.processes_ns) == ("error", ())
    assert odd.reason == "its status is 'splendid', which attnbench does not know"


@pytest.mark.parametrize(
    "extra", [{"case": "large"}, {"case": 3, "backend": "x"}, {"backend": "x"}, None, [1]]
)
def test_extra_info_of_other_tools_is_ignored(extra: Any) -> None:
    data = golden("v5-json.json")
    data["benchmarks"][0]["extra_info"] = extra
    cell = read(data).cells[0]
    assert (cell.key, cell.status) == (("test_tiny.py::test_sum", ""), "ok")


def test_two_benchmarks_of_one_case_and_backend_both_stay() -> None:
    data = golden("v5-json.json")
    data["benchmarks"][0]["extra_info"] = data["benchmarks"][3]["extra_info"]
    assert [cell.key for cell in read(data).cells if cell.backend] == [
        (f"{CASE} (test_tiny.py::test_sum)", "eager"),
        (f"{CASE} (test_tiny.py::test_attention[eager])", "eager"),
        (CASE, "bmm"),
    ]


ONE = golden("v5-json.json")["benchmarks"][0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"benchmarks": [3]}, "damaged: Expected `object`, got `int` - at `$.benchmarks"),
        ({"datetime": 7}, "damaged: Expected `str`, got `int` - at `$.datetime`"),
        ({"benchmarks": [ONE, {"stats": ONE["stats"]}]}, "damaged: benchmark 2 of the list has no name"),
        ({"benchmarks": [ONE, ONE]}, "damaged: the benchmark 'test_tiny.py::test_sum' is there 2 times"),
        ({"attnbench": {"left_out": 3}}, "at `$.attnbench.left_out`"),
        ({"attnbench": {"left_out": [{}]}}, "an entry of attnbench.left_out has no case"),
    ],
)
def test_files_without_names_or_of_another_shape_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadFile, match=r"^'.*bench\.json'") as refused:
        read(golden("v5-json.json") | change)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": "6.0"}, "pytest-benchmark 6.0 wrote it; attnbench knows versions 4 and 5"),
        ({"version": "3.4.1"}, "pytest-benchmark 3.4.1 wrote it; attnbench knows versions 4 and 5"),
        ({"version": ""}, "does not name the version of pytest-benchmark that wrote it"),
        ({"benchmarks": []}, "has no benchmarks"),
    ],
)
def test_problems_of_a_file_are_sentences(change: dict[str, Any], problem: str) -> None:
    (found,) = read(golden("v5-json.json") | change).problems
    assert found.endswith(f"bench.json: {problem}")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_any_damage_is_a_refusal_or_leaves_no_time(data: st.DataObject) -> None:
    found = golden("v5-json.json")
    del found["machine_info"]["cpu"]["flags"], found["benchmarks"][2:]
    place: Any = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(json_values)
    try:
        run = read(found)
    except BadFile:
        return
    for cell in run.cells:
        assert bool(cell.processes_ns) == (cell.status == "ok")
        assert all(0 < time < INF for time in (*cell.processes_ns, *cell.calls_ns))
        assert bool(cell.reason) == (cell.status != "ok")


@settings(max_examples=50)
@given(run=measured())
def test_reading_restores_a_written_run(run: Measured) -> None:
    data = to_pytest_benchmark(run)
    names = [(one["group"], one["name"]) for one in data["benchmarks"]]
    assert names == [cell.key for cell in run.cells if cell.status == "ok" and cell.processes_ns]
    again = read(data)
    assert {cell.key: cell for cell in again.cells} == {cell.key: cell for cell in run.cells}
    nothing = () if run.cells else (f"{again.path}: has no benchmarks",)
    assert replace(again, cells=run.cells, path=run.path) == replace(run, problems=(*nothing, *run.problems))


def test_the_fields_are_those_that_pytest_benchmark_writes() -> None:
    theirs = golden("v5-json.json")
    ours = to_pytest_benchmark(side(ok("eager", 1.0, 2.0)))
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


def test_pytest_benchmark_compare_opens_our_files(tmp_path: Path) -> None:
    other = CASES[1]
    fast = side(ok("eager", 1.0, 1.1, 1.2), ok("bmm", 2.0, 2.0, 2.0), ok("eager", 5.0, case=other))
    slow = side(ok("eager", 2.0, 2.2, 2.4), Cell(CASES[0], "dot", "bmm", "crashed", reason="signal 11"))
    write_pytest_benchmark(fast, tmp_path / "fast.json")
    write_pytest_benchmark(slow, tmp_path / "slow.json")
    shutil.copy(GOLDEN / "v4-save.json", tmp_path / "theirs.json")
    done = subprocess.run(
        [Path(sys.executable).with_name("pytest-benchmark"), "compare",
         "fast.json", "slow.json", "theirs.json", "--columns=median,rounds,outliers,ops", "--sort=name"],
        cwd=tmp_path, env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    heads = [
        line.strip("- ") for line in done.stdout.splitlines() if f"benchmark {'attention'!r}"[:-1] in line
    ]
    assert heads == [f"benchmark {CASES[0]!r}: 3 tests", f"benchmark {other!r}: 1 tests"]
    rows = [line.split()[:3] for line in done.stdout.splitlines() if line.startswith(("eager", "bmm"))]
    assert rows == [
        ["bmm", "(fast)", "2.0000"], ["eager", "(fast)", "1.1000"], ["eager", "(slow)", "2.2000"],
        ["eager", "(fast)", "5.0000"],
    ]  # fmt: skip
    assert "test_sorted[100]" in done.stdout


def test_only_a_file_of_pytest_benchmark_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bench.json"
    one, two = side(ok("eager", 1.0)), side(ok("eager", 2.0))
    write_pytest_benchmark(one, path)
    write_pytest_benchmark(two, path)
    assert read_pytest_benchmark(path).cells == two.cells
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    for text in ('{"benchmarks": []}', "mine", '{"kind":"manifest"}\n{"kind":"end"}\n', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(BadInput, match="pytest-benchmark's format that attnbench wrote: name another"):
            write_pytest_benchmark(one, path)
        assert path.read_text() == text
    path.unlink()
    write_pytest_benchmark(one, path)

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left on device"):
        write_pytest_benchmark(two, path)
    assert read_pytest_benchmark(path).cells == one.cells
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench.json"]
