"""``attnbench compare`` and ``history`` on stored sides: conditions with their sentences and exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import BESIDE, CASES, LONG, SHORT, ok, side, times, write_benchmarks, write_run
from run_files import write_records

from attnbench.results.pytest_benchmark import write_pytest_benchmark
from attnbench.types.compared import Cell
from attnbench.types.record import Record

Invoke = Callable[..., Result]
LATER = "2026-02-01T00:00:00+00:00"


def cells(factor: float = 1.0, *, case: str = SHORT, names: tuple[str, ...] = ("mine", *BESIDE)) -> Any:
    """By case and backend the times of nine repetitions; ``mine`` is slower by a factor."""
    taken = {name: times(1e6 * (1 + i) * (factor if name == "mine" else 1)) for i, name in enumerate(names)}
    return {case: taken}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_run(tmp_path / "base.jsonl", cells=cells())


def new(tmp_path: Path, **said: Any) -> Path:
    return write_run(tmp_path / "new.jsonl", **({"cells": cells(), "started": LATER} | said))


def lost(status: str) -> dict[str, Any]:
    """Changes by which ``mine`` has no time but this status."""
    return {"cells": cells(names=BESIDE), "statuses": {(SHORT, "mine"): status}}


def compare(invoke: Invoke, *words: object) -> Result:
    return invoke("compare", *map(str, words))


def checked(path: Path, status: str = "ok") -> Path:
    """A stored run of ``attnbench check``: records, and no times."""
    wrong = {"reason": "RMS error", "failed_check": "values"} if status != "ok" else {}
    write_records(path, Record(SHORT, "dot", "mine", status, **wrong), cases=[SHORT], backends=["mine"])
    return path


def test_two_stored_checks_have_no_times_to_compare(invoke: Invoke, tmp_path: Path) -> None:
    sides = [checked(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    result = compare(invoke, *sides, "--force")
    assert result.exit_code == 3, result.output
    assert "nothing could be compared: neither side was timed; attnbench run times" in result.stdout
    worse = compare(invoke, sides[0], checked(tmp_path / "c.jsonl", "mismatch"), "--force")
    assert worse.exit_code == 1
    assert "gate fails: 1 mismatch" in worse.stdout


def test_a_slowdown_fails(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    result = compare(invoke, base, new(tmp_path, cells=cells(1.1)), "--format", "json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["failing"] == [[SHORT, "mine"]]
    assert (data["exit_code"], data["forced"]) == (1, False)
    assert data["gate"] == "fails: 1 slower of 5 cells; 4 same"
    (mine,) = (cell for cell in data["cells"] if cell["backend"] == "mine")
    assert mine["verdict"] == "slower"
    assert mine["low"] < mine["ratio"] < mine["high"]


CONDITIONS: dict[str, tuple[dict[str, Any], tuple[str, ...], int, str]] = {
    "same": ({}, ("--strict",), 0, "gate holds"),
    "gone": ({"cells": cells(names=BESIDE)}, (), 1, f"1 cell only in base: mine on {SHORT}"),
    "added, strict": ({"cells": cells(names=("mine", *BESIDE, "added"))}, ("--strict",), 1, "added on"),
    "wrong": (lost("mismatch"), (), 1, "gate fails: 1 mismatch"),
    "crashed": (lost("crashed"), (), 1, "crashed in new (as it is"),
    "cut off": ({"ended": False}, (), 0, "the run was cut off"),
    "cut off, strict": ({"ended": False}, ("--strict",), 1, "the run was cut off, 0 of its records are"),
    "nothing in common": ({"cells": cells(case=LONG)}, (), 3, "nothing could be compared: no cell is on"),
    "another allocator": (
        {"protocol": {"allocator_pinned": False}}, (), 2, "allocator_pinned (True in base, False",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(invoke: Invoke, base: Path, tmp_path: Path, name: str) -> None:
    changes, words, status, sentence = CONDITIONS[name]
    result = compare(invoke, base, new(tmp_path, **changes), *words)
    assert result.exit_code == status, result.output
    assert sentence in " ".join((result.stderr if status == 2 else result.stdout).split())
    if status == 2:
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)


def test_the_command_line_overrides_the_whole_gate_file(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    slower = new(tmp_path, cells=cells(1.1))
    gate = tmp_path / "gate.toml"
    gate.write_text("[[cells]]\nbackend = 'mine'\ndelta = '50%'\n")
    lenient = compare(invoke, base, slower, "--gate", gate)
    assert lenient.exit_code == 0, lenient.output
    assert compare(invoke, base, slower, "--gate", gate, "--delta", "2%").exit_code == 1
    gate.write_text("[[cells]]\nbackend = 'mine'\nfail-on = ['slower']\n")
    assert compare(invoke, base, slower, "--gate", gate).exit_code == 1
    assert compare(invoke, base, slower, "--gate", gate, "--fail-on", "nothing").exit_code == 0
    gate.write_text("[[cells]]\nbackend = 'mine'\nignore = 'known'\n")
    ignored = compare(invoke, base, slower, "--gate", gate, "--fail-on", "slower", "--delta", "2%")
    assert ignored.exit_code == 0


def test_a_red_gate_names_the_file_that_was_given(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    slower, gate = new(tmp_path, cells=cells(1.1)), tmp_path / "mine.toml"
    gate.write_text("[[cells]]\nbackend = 'gone'\nignore = 'it compiles'\n")
    for format_ in ("table", "markdown"):
        result = compare(invoke, base, slower, "--gate", gate, "--format", format_)
        assert result.exit_code == 1
        where = f"{gate} (in place of older ones of these cells), with your reason for 'say why':"
        assert f"to accept it before a merge, add these lines to {where}" in result.stdout
    assert "gate.toml, and compare" in compare(invoke, base, slower).stdout


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_rule_that_fits_nothing_is_told_beside_data(
    invoke: Invoke, base: Path, tmp_path: Path, format_: str
) -> None:
    gate = tmp_path / "mine.toml"
    gate.write_text("[[cells]]\nbackend = 'gone'\nignore = 'it compiles'\n")
    result = compare(invoke, base, new(tmp_path), "--gate", gate, "--format", format_)
    assert "warning: a rule of the gate fits no cell: case '*', backend 'gone'" in result.stderr


def test_the_summary_goes_where_github_says(
    invoke: Invoke, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    slower = new(tmp_path, cells=cells(1.1))
    result = compare(invoke, base, slower, "--summary")
    assert result.exit_code == 1
    text = summary.read_text()
    assert text.startswith("# before\n❌ attnbench compare, measured on ")
    assert ": gate fails: 1 slower of 5 cells; 4 same; worst: " in text.splitlines()[1]
    assert compare(invoke, base, slower, "--format", "markdown").stdout == text.removeprefix("# before\n")
    summary.unlink()
    gone = str(tmp_path / "gone.jsonl")
    assert compare(invoke, base, gone, "--summary").exit_code == 2
    assert summary.read_text().startswith("❌ attnbench compare: no file '")


def spoiled(data: st.DrawFn, whole: bytes, kind: str) -> bytes:
    """A file that is no whole run any more."""
    lines = whole.splitlines(keepends=True)
    if kind == "cut":
        return whole[: data(st.integers(0, len(whole) - 2))]
    if kind == "line gone":
        gone = data(st.integers(0, len(lines) - 1))
        return b"".join(line for i, line in enumerate(lines) if i != gone)
    if kind == "line twice":
        kept = [
            i for i, line in enumerate(lines) if b'"kind":"repetition"' in line or b'"kind":"record"' in line
        ]
        twice = data(st.sampled_from(kept))
        return b"".join([*lines[: twice + 1], *lines[twice:]])
    if kind == "rubbish":
        return data(st.binary(max_size=200))
    if kind == "rubbish inside":
        place = data(st.integers(1, len(lines)))
        rubbish = data(st.binary(min_size=1, max_size=30).filter(bytes.strip))  # blank lines are none
        return b"".join([*lines[:place], rubbish + b"\n", *lines[place:]])
    return data(st.sampled_from([b"", b"\n", b"{}", b"[]", b"null", b'{"benchmarks": []}', b"NaN"]))


KINDS = ["cut", "line gone", "line twice", "rubbish", "rubbish inside", "empty"]


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_malformed_mixed_or_empty_exits_0_in_strict(
    invoke: Invoke, tmp_path: Path, data: st.DataObject
) -> None:
    whole = write_run(tmp_path / "whole.jsonl", cells=cells()).read_bytes()
    kind = data.draw(st.sampled_from(KINDS))
    name = data.draw(st.sampled_from(["bad.jsonl", "bad.json"]))
    (tmp_path / name).write_bytes(spoiled(data.draw, whole, kind))
    good = new(tmp_path)
    sides = data.draw(st.permutations([good, tmp_path / name]))
    force = data.draw(st.sampled_from([(), ("--force",)]))
    result = compare(invoke, *sides, "--strict", *force)
    (tmp_path / name).unlink()
    assert result.exit_code in (1, 2, 3), (kind, result.stdout)
    assert "Traceback" not in result.stderr
    if result.exit_code == 2:
        assert result.stdout == ""


def test_mixed_formats_never_exit_0_in_strict(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    write_benchmarks(mixed / "a.json", {"test_mine": 1e-3})
    new(mixed)
    for sides in ((base, mixed), (mixed, base), (base, mixed / "a.json"), (mixed / "a.json", base)):
        for force in ((), ("--force",)):
            assert compare(invoke, *sides, "--strict", *force).exit_code in (1, 2, 3)


def test_history_leaves_out_what_was_never_timed(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    write_pytest_benchmark(side(ok("eager", 1.0), run_id="timed"), Path("results/timed.json"))
    before = invoke("history").stdout
    checked = (
        Cell(CASES[0], "dot", "checked", "ok"),
        Cell(CASES[0], "dot", "wrong", "mismatch", reason="far off"),
        Cell(CASES[0], "dot", "elsewhere", "unavailable", reason="runs on cuda only"),
    )
    write_pytest_benchmark(side(*checked, run_id="checked"), Path("results/checked.json"))
    shown = invoke("history").stdout
    assert before != shown
    assert "wrong" in shown
    assert "checked" not in shown
    assert "elsewhere" not in shown


def test_another_version_of_a_library_is_refused_and_one_of_one_side_is_a_warning(
    invoke: Invoke, tmp_path: Path
) -> None:
    def side_with(name: str, **libraries: str) -> Path:
        facts = {"plugin_libraries": libraries}
        return write_run(tmp_path / f"{name}.jsonl", cells=cells(), environment=facts, started=f"{name}-01")

    older, newer, bare = (
        side_with("2026", numba="0.67.0"),
        side_with("2027", numba="0.68.0"),
        side_with("2028"),
    )
    result = compare(invoke, older, newer)
    assert result.exit_code == 2
    assert "library numba (0.67.0 in base, 0.68.0 in new)" in result.stderr
    assert compare(invoke, older, newer, "--force").exit_code == 0
    assert compare(invoke, older, newer, "--force", "--strict").exit_code == 1
    result = compare(invoke, older, bare, "--strict")
    assert result.exit_code == 1
    assert "only one side states library numba (0.67.0 in base, not stated in new)" in result.output


def test_history_reads_the_folder_results_by_itself(
    invoke: Invoke, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = invoke("history")
    assert (refused.exit_code, refused.stdout) == (2, "")
    (tmp_path / "results").mkdir()
    base.rename(tmp_path / "results" / "base.jsonl")
    assert "mine" in invoke("history").stdout


def test_report_and_compare_say_that_a_run_was_cut_off(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    half = new(tmp_path, ended=False)
    told = f"{half}: the run was cut off, 0 of its records are missing; continue with attnbench run --resume"
    assert told in invoke("report", str(half)).stderr
    assert told in " ".join(compare(invoke, base, half).stdout.split())
