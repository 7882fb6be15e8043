"""Files of pytest-benchmark: those that it wrote are read, damaged ones are named and never a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import GOLDEN, golden

from attnbench.results.pytest_benchmark import is_pytest_benchmark, read_pytest_benchmark
from attnbench.types.compared import Measured
from attnbench.types.errors import BadFile

FILES = sorted(path.name for path in GOLDEN.glob("*.json"))
CASE = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
PATH = Path("bench.json")


def read(data: Any) -> Measured:
    return read_pytest_benchmark(PATH, data)


@pytest.mark.parametrize("name", FILES)
def test_what_pytest_benchmark_writes_is_read(name: str) -> None:
    data = golden(name)
    run = read_pytest_benchmark(GOLDEN / name, data)
    assert is_pytest_benchmark(data)
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
        least, lower, middle, upper, most = cell.calls_ns
        assert least <= lower <= middle <= upper <= most
        assert (least, most) == (stats["min"] * 1e9, stats["max"] * 1e9)
    assert run.origin == "pytest-benchmark"
    assert run.version == {"v4": "4.0.0", "v5": "5.3.1"}[name[:2]]
    assert run.problems == ()


@pytest.mark.parametrize("name", FILES)
def test_machine_and_commit_have_the_names_that_runs_of_ours_have(name: str) -> None:
    run = read(golden(name))
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


def test_the_same_moment_is_the_same_date_in_both_versions() -> None:
    data = golden("v5-save.json")
    dates = ["2026-01-02T03:04:05.678", "2026-01-02T03:04:05+00:00", "2026-01-02T05:04:05+02:00"]
    assert {read(data | {"datetime": date}).started for date in dates} == {"2026-01-02T03:04:05+00:00"}
    assert read(data | {"datetime": "yesterday"}).started == "yesterday"
    assert read(data | {"datetime": 7}).started == ""


@pytest.mark.parametrize(
    ("info", "commit"),
    [
        ({"id": "abc", "dirty": True}, "abc-dirty"),
        ({"id": "unversioned", "dirty": False}, ""),
        ({"id": "unknown", "error": "CalledProcessError"}, ""),
        ({"id": None}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_commits_that_are_none(info: Any, commit: str) -> None:
    assert read(golden("v4-save.json") | {"commit_info": info}).commit == commit


def test_what_a_project_adds_to_the_machine_is_kept_and_the_host_is_not() -> None:
    data = golden("v4-save.json")
    data["machine_info"] |= {"node": "runner-17", "torch": "2.6.0", "gpu": {"name": "x"}, "cuda": None}
    environment = read(data).environment
    assert environment["torch"] == "2.6.0"
    assert "runner-17" not in str(environment)
    assert not {"gpu", "cuda"} & environment.keys()
    data["machine_info"] = {"processor": "i386", "cpu": None}
    assert read(data).environment == {"cpu": "i386"}


def test_options_that_benchmarks_do_not_share_are_said_so() -> None:
    data = golden("v5-save.json")
    data["benchmarks"][1]["options"]["timer"] = "process_time"
    assert read(data).protocol["timer"] == "per benchmark"
    assert read(data).protocol["disable_gc"] is False


def damaged(change: Callable[[dict[str, Any]], Any]) -> tuple[str, str, tuple[float, ...]]:
    """What becomes of the first benchmark, changed; the others stay."""
    data = golden("v5-json.json")
    change(data["benchmarks"][0])
    first, *others = read(data).cells
    assert others == [*read(golden("v5-json.json")).cells[1:]]
    return first.status, first.reason, first.processes_ns


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "stats",
    [
        *({"median": value} for value in (NAN, INF, 0.0, -1e-6, "fast", True, None, 10**400, 1e9)),
        *({"rounds": value} for value in (0, -3, 2.5)),
        {"min": NAN},
    ],
    ids=str,
)
def test_numbers_that_can_not_be_damage_their_benchmark_alone(stats: dict[str, Any]) -> None:
    status, reason, times = damaged(lambda found: found["stats"].update(stats))
    assert (status, times) == ("error", ())
    assert reason.startswith("its stats are damaged: ")


@pytest.mark.parametrize("extra", [{"processes_ns": [10**400]}, {"processes_ns": [1.0], "ratio": 10**400}])
def test_so_do_whole_numbers_that_no_float_holds(extra: dict[str, Any]) -> None:
    mine = {"case": CASE, "backend": "mine"} | extra
    status, reason, times = damaged(lambda found: found.update(extra_info=mine))
    assert (status, times) == ("error", ())
    assert reason.startswith("its extra_info is damaged: ")


@pytest.mark.parametrize("stats", [None, {}, [1, 2], "x"])
def test_so_do_stats_that_are_none(stats: Any) -> None:
    assert damaged(lambda found: found.update(stats=stats))[0] == "error"
    assert damaged(lambda found: found.pop("stats"))[0] == "error"


def test_rounding_of_quartiles_is_no_contradiction() -> None:
    same = 1.234567e-05
    stats = dict.fromkeys(("min", "median", "max"), same) | {"q1": same * (1 - 1e-15), "q3": same}
    status, _, times = damaged(lambda found: found["stats"].update(stats))
    assert (status, times) == ("ok", (same * 1e9,))


def test_what_our_plugin_says_of_a_benchmark_counts() -> None:
    data = golden("v5-json.json")
    data["benchmarks"][3]["extra_info"] |= {"status": "mismatch", "reason": "rms error"}
    data["benchmarks"][4]["extra_info"] |= {"status": "splendid"}
    wrong, odd = read(data).cells[3:5]
    assert (wrong.status, wrong.reason, wrong.processes_ns) == ("mismatch", "rms error", ())
    assert (odd.status, odd.processes_ns) == ("error", ())
    assert odd.reason == "its status is 'splendid', which attnbench hasn't"


@pytest.mark.parametrize(
    "extra", [{"case": "large"}, {"case": 3, "backend": "x"}, {"backend": "x"}, None, [1]]
)
def test_extra_info_of_others_is_theirs(extra: Any) -> None:
    data = golden("v5-json.json")
    data["benchmarks"][0]["extra_info"] = extra
    cell = read(data).cells[0]
    assert (cell.key, cell.status) == (("test_tiny.py::test_sum", ""), "ok")


def test_two_benchmarks_of_one_case_and_backend_keep_both_under_their_names() -> None:
    data = golden("v5-json.json")
    data["benchmarks"][0]["extra_info"] = data["benchmarks"][3]["extra_info"]
    assert [cell.key for cell in read(data).cells if cell.backend] == [
        (f"{CASE} (test_tiny.py::test_sum)", "eager"),
        (f"{CASE} (test_tiny.py::test_attention[eager])", "eager"),
        (CASE, "bmm"),
    ]


def _twice(data: dict[str, Any]) -> None:
    data["benchmarks"].append(deepcopy(data["benchmarks"][0]))


def _nameless(data: dict[str, Any]) -> None:
    del data["benchmarks"][1]["fullname"], data["benchmarks"][1]["name"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data.pop("benchmarks"), "is no file of pytest-benchmark: it has no list of benchmarks"),
        (lambda data: data.update(benchmarks={}), "it has no list of benchmarks"),
        (lambda data: data.update(benchmarks=[3]), "damaged: benchmark 1 of the list has no name"),
        (_nameless, "damaged: benchmark 2 of the list has no name"),
        (_twice, "damaged: the benchmark 'test_tiny.py::test_sum' stands here 2 times"),
        (lambda data: data.update(attnbench={"left_out": 3}), "attnbench.left_out is no list of cells"),
        (lambda data: data.update(attnbench={"left_out": [{}]}), "cell 1 of attnbench.left_out has no name"),
    ],
)
def test_files_whose_benchmarks_have_no_names_are_refused(change: Callable[..., Any], sentence: str) -> None:
    data = golden("v5-json.json")
    change(data)
    with pytest.raises(BadFile, match=r"^'bench\.json'") as refused:
        read(data)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": "6.0"}, "bench.json: was written by pytest-benchmark 6.0; known are versions 4 and 5"),
        (
            {"version": "3.4.1"},
            "bench.json: was written by pytest-benchmark 3.4.1; known are versions 4 and 5",
        ),
        ({"version": None}, "bench.json: doesn't say which version of pytest-benchmark wrote it"),
        ({"benchmarks": []}, "bench.json: holds no benchmarks"),
    ],
)
def test_what_a_reader_must_know_is_said(change: dict[str, Any], problem: str) -> None:
    assert read(golden("v5-json.json") | change).problems == (problem,)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_whatever_is_damaged_is_a_sentence_or_no_time(data: st.DataObject) -> None:
    """Any value of a file replaced by any other: a refusal, or cells whose times can be times."""
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
        run = read(json.loads(json.dumps(found)))
    except BadFile:
        return
    for cell in run.cells:
        assert bool(cell.processes_ns) == (cell.status == "ok")
        assert all(0 < time < INF for time in (*cell.processes_ns, *cell.calls_ns))
        assert bool(cell.reason) == (cell.status != "ok")
