"""``attnbench compare`` on stored sides: every named condition with its sentence and exit status."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import BESIDE, LONG, SHORT, run_lines, times, write_benchmarks, write_run

from attnbench.types.record import Record

Invoke = Callable[..., Result]
LATER = "2026-02-01T00:00:00+00:00"


def cells(factor: float = 1.0, *, case: str = SHORT, names: tuple[str, ...] = ("mine", *BESIDE)) -> Any:
    """By case and backend the times of nine sets; ``mine`` is slower by a factor."""
    taken = {name: times(1e6 * (1 + i) * (factor if name == "mine" else 1)) for i, name in enumerate(names)}
    return {case: taken}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_run(tmp_path / "base.jsonl", cells=cells())


def new(tmp_path: Path, **said: Any) -> Path:
    return write_run(tmp_path / "new.jsonl", **({"cells": cells(), "started": LATER} | said))


def compare(invoke: Invoke, *words: object) -> Result:
    return invoke("compare", *map(str, words))


def verdicts(result: Result) -> dict[str, str]:
    return {cell["backend"]: cell["verdict"] for cell in json.loads(result.stdout)["cells"]}


def test_identical_runs_hold(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    result = compare(invoke, base, new(tmp_path), "--format", "json", "--strict")
    assert (result.exit_code, result.stderr) == (0, "")
    assert set(verdicts(result).values()) == {"same"}


def test_a_slowdown_fails(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    result = compare(invoke, base, new(tmp_path, cells=cells(1.1)), "--format", "json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["failing"] == [[SHORT, "mine"]]
    assert (data["exit_code"], data["gate"], data["forced"]) == (1, "fails: 1 slower", False)
    (mine,) = (cell for cell in data["cells"] if cell["backend"] == "mine")
    assert mine["verdict"] == "slower"
    assert mine["low"] < mine["ratio"] < mine["high"]
    assert list(mine) == [
        "case", "rule", "backend", "base_ms", "new_ms", "ratio", "low", "high", "verdict", "reason",
        "base_status", "new_status", "confidence", "p_value", "p_adjusted", "delta", "least_told", "forced",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 1),
        (("--fail-on", "mismatch"), 0),
        (("--fail-on", "nothing"), 0),
        (("--delta", "20%"), 0),
        (("--fail-on", "slower,unclear"), 1),
    ],
)
def test_what_fails_can_be_said(
    invoke: Invoke, base: Path, tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    assert compare(invoke, base, new(tmp_path, cells=cells(1.1)), *words).exit_code == status


def test_a_gate_file_says_it_by_cell_and_the_command_line_overrides(
    invoke: Invoke, base: Path, tmp_path: Path
) -> None:
    gate, slower = tmp_path / "gate.toml", new(tmp_path, cells=cells(1.1))
    gate.write_text('fail-on = []\n[[cells]]\nbackend = "mine"\ndelta = "20%"\n')
    loose = compare(invoke, base, slower, "--gate", gate, "--format", "json")
    assert (loose.exit_code, verdicts(loose)["mine"]) == (0, "same")
    gate.write_text('fail-on = []\nstrict = false\n[[cells]]\nbackend = "other"\nignore = "gone"\n')
    assert compare(invoke, base, slower, "--gate", gate).exit_code == 0
    assert compare(invoke, base, slower, "--gate", gate, "--fail-on", "slower").exit_code == 1
    strict = compare(invoke, base, slower, "--gate", gate, "--strict")
    assert strict.exit_code == 1
    assert "a rule of the gate fits no cell: case '*', backend 'other'" in " ".join(strict.stdout.split())


# Refused with exit status 2 and one sentence, nothing on stdout.


def refused(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_baseline(invoke: Invoke, tmp_path: Path) -> None:
    missing = tmp_path / "gone.jsonl"
    refused(compare(invoke, missing, new(tmp_path)), f"there is no '{missing}': nothing to compare")


def test_an_empty_baseline(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    refused(compare(invoke, tmp_path / "empty.jsonl", new(tmp_path)), "is empty: nothing was measured")
    (tmp_path / "folder").mkdir()
    refused(compare(invoke, tmp_path / "folder", new(tmp_path)), "holds no run (*.jsonl, *.json)")


def test_a_format_newer_than_this(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    lines = run_lines(cells())
    lines[0] = msgspec.structs.replace(lines[0], format=99)
    refused(compare(invoke, base, write_run(tmp_path / "new.jsonl", lines)), "install a newer attnbench")


def test_nan_in_a_file(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    path = new(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"wall_ns":[', b'"wall_ns":[NaN,', 1))
    refused(compare(invoke, base, path), "line 3: damaged (")


def test_unlike_environments_and_force(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    other = new(tmp_path, environment={"cpu": "Other CPU", "system": "Linux 6.2"})
    refused(compare(invoke, base, other), "cpu (Made CPU in base, Other CPU in new)")
    forced = compare(invoke, base, other, "--force")
    assert forced.exit_code == 0
    assert forced.stdout.splitlines()[2].startswith("FORCED: the sides were not measured alike")
    assert "cpu (Made CPU → Other CPU)" in forced.stdout
    assert compare(invoke, base, other, "--force", "--strict").exit_code == 1
    data = json.loads(compare(invoke, base, other, "--force", "--format", "json").stdout)
    assert data["forced"]
    assert {cell["forced"] for cell in data["cells"]} == {True}
    rows = list(
        csv.DictReader(compare(invoke, base, other, "--force", "--format", "csv").stdout.splitlines())
    )
    assert {row["forced"] for row in rows} == {"yes"}
    assert compare(invoke, base, other, "--force", "--format", "markdown").stdout.startswith("**FORCED: ")


def test_dials_that_change_what_a_time_is(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    other = new(tmp_path, protocol={"allocator_pinned": False})
    refused(compare(invoke, base, other), "protocol allocator_pinned (True in base, False in new)")


def test_both_formats_against_each_other(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    other = write_benchmarks(tmp_path / "b.json", {"test_mine": 1e-3})
    refused(compare(invoke, base, other), "measured by (attnbench in base, pytest-benchmark in new)")


# Named in the output, and failing.


def failing(result: Result, sentence: str) -> None:
    assert result.exit_code == 1, result.stdout + result.stderr
    assert sentence in " ".join(result.stdout.split())


def test_a_cell_that_is_gone(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    without = new(tmp_path, cells=cells(names=BESIDE))
    failing(compare(invoke, base, without), f"1 cell only in base: mine on {SHORT}")
    failing(compare(invoke, base, without), "gate fails: 1 missing")
    assert compare(invoke, base, without, "--fail-on", "slower").exit_code == 0


def test_a_cell_that_is_new_is_named_and_fails_in_strict_alone(
    invoke: Invoke, base: Path, tmp_path: Path
) -> None:
    more = new(tmp_path, cells=cells(names=("mine", *BESIDE, "added")))
    sentence = "1 cell only in new, with nothing to be compared with: added on"
    lax = compare(invoke, base, more)
    assert lax.exit_code == 0
    assert sentence in " ".join(lax.stdout.split())
    failing(compare(invoke, base, more, "--strict"), sentence)


@pytest.mark.parametrize("status", ["crashed", "timeout", "suspect", "out_of_memory", "error", "unsupported"])
def test_a_time_that_is_lost(invoke: Invoke, base: Path, tmp_path: Path, status: str) -> None:
    lost = new(tmp_path, cells=cells(names=BESIDE), statuses={(SHORT, "mine"): status})
    failing(compare(invoke, base, lost), f"{status.replace('_', ' ')} in new (as it is")


def test_an_output_that_is_wrong(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    wrong = new(tmp_path, cells=cells(names=BESIDE), statuses={(SHORT, "mine"): "mismatch"})
    failing(compare(invoke, base, wrong), "gate fails: 1 mismatch")


def test_zero_samples(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    bare = new(tmp_path, cells=cells(names=BESIDE), statuses={(SHORT, "mine"): "ok"})
    failing(compare(invoke, base, bare), "ok in new, and yet without a sample")


def test_a_changed_fingerprint(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    other = new(tmp_path, pairs=136)
    failing(compare(invoke, base, other), "the case has another meaning on either side: 136 pairs")


def test_a_run_that_was_cut_off(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    cut = write_run(tmp_path / "new.jsonl", run_lines(cells(), ended=False, started=LATER))
    assert "the run was cut off" in compare(invoke, base, cut).stdout
    assert compare(invoke, base, cut).exit_code == 0
    failing(compare(invoke, base, cut, "--strict"), "the run was cut off, 0 of its records are missing")


def test_unequal_versions_of_a_format(invoke: Invoke, tmp_path: Path) -> None:
    old = write_benchmarks(tmp_path / "old.json", {"test_mine": 1e-3}, version="4.0.0")
    young = write_benchmarks(tmp_path / "new.json", {"test_mine": 1e-3}, datetime="2026-02-01T00:00:00")
    result = compare(invoke, old, young)
    assert result.exit_code == 0
    assert "unequal versions of the format of pytest-benchmark" in " ".join(result.stdout.split())
    failing(compare(invoke, old, young, "--strict"), "unequal versions of the format of pytest-benchmark")


# Nothing could be compared: 3.


def test_every_pair_excluded(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate.toml"
    gate.write_text('[[cells]]\nignore = "all of them"\n')
    result = compare(invoke, base, new(tmp_path), "--gate", gate)
    assert result.exit_code == 3
    assert "gate: nothing could be compared: every cell is ignored" in result.stdout


def test_sides_without_a_cell_in_common(invoke: Invoke, base: Path, tmp_path: Path) -> None:
    result = compare(invoke, base, new(tmp_path, cells=cells(case=LONG)), "--fail-on", "slower")
    assert result.exit_code == 3
    assert "nothing could be compared: no cell has a time on both sides" in result.stdout


# Other ways to ask.


def test_folders_of_several_runs(invoke: Invoke, tmp_path: Path) -> None:
    for name, factor in (("base", 1.0), ("new", 1.2)):
        (tmp_path / name).mkdir()
        for i in range(6):
            lines = run_lines(cells(factor * (1 + i / 1000)), started=f"2026-01-0{i + 1} {name}")
            lines[0] = msgspec.structs.replace(lines[0], run_id=f"{name}-{i}")
            write_run(tmp_path / name / f"{i}.jsonl", lines)
    result = compare(invoke, tmp_path / "base", tmp_path / "new", "--format", "json")
    assert verdicts(result)["mine"] == "slower"
    assert json.loads(result.stdout)["base"] == f"6 runs from {tmp_path / 'base' / '0.jsonl'}"


def test_one_run_and_another_baseline(invoke: Invoke, base: Path) -> None:
    result = compare(invoke, base, "--baseline", "two", "--format", "json")
    assert result.exit_code == 0
    assert verdicts(result) == {"mine": "faster", "one": "faster", "three": "slower", "four": "slower"}
    assert compare(invoke, base, "--baseline", "two", "--fail-on", "slower").exit_code == 1
    refused(compare(invoke, base, "--baseline", "tow"), "no backend 'tow'; did you mean 'two'?")
    refused(compare(invoke, base, base, "--baseline", "two"), "2 paths: --baseline looks at one RUN")


@pytest.mark.parametrize("count", [0, 3])
def test_two_sides_are_needed(invoke: Invoke, base: Path, count: int) -> None:
    refused(compare(invoke, *[base] * count), f"{count} paths: give two, BASE and NEW")


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
    assert text.startswith("# before\n**attnbench compare:** ❌ gate fails: 1 slower.")
    assert compare(invoke, base, slower, "--format", "markdown").stdout == text.removeprefix("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "folder"))
    unwritable = compare(invoke, base, slower, "--summary")
    assert unwritable.exit_code == 2
    assert "--summary: can't write" in unwritable.stderr
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    refused(compare(invoke, base, slower, "--summary"), "--summary: GITHUB_STEP_SUMMARY is not set")


def spoiled(data: st.DrawFn, whole: bytes, kind: str) -> bytes:
    """A file that is no whole run any more."""
    lines = whole.splitlines(keepends=True)
    if kind == "cut":
        return whole[: data(st.integers(0, len(whole) - 2))]
    if kind == "line gone":
        gone = data(st.integers(0, len(lines) - 1))
        return b"".join(line for i, line in enumerate(lines) if i != gone)
    if kind == "line twice":
        kept = [i for i, line in enumerate(lines) if b'"kind":"set"' in line or b'"kind":"record"' in line]
        twice = data(st.sampled_from(kept))
        return b"".join([*lines[: twice + 1], *lines[twice:]])
    if kind == "rubbish":
        return data(st.binary(max_size=200))
    if kind == "rubbish inside":
        place = data(st.integers(1, len(lines)))
        return b"".join([*lines[:place], data(st.binary(min_size=1, max_size=30)) + b"\n", *lines[place:]])
    return data(st.sampled_from([b"", b"\n", b"{}", b"[]", b"null", b'{"benchmarks": []}', b"NaN"]))


KINDS = ["cut", "line gone", "line twice", "rubbish", "rubbish inside", "empty"]


@given(st.data())
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_malformed_mixed_or_empty_exits_0_in_strict(
    invoke: Invoke, tmp_path: Path, data: st.DataObject
) -> None:
    lines = [replace(line, sets=9) if isinstance(line, Record) else line for line in run_lines(cells())]
    whole = write_run(tmp_path / "whole.jsonl", lines)
    kind = data.draw(st.sampled_from(KINDS))
    name = data.draw(st.sampled_from(["bad.jsonl", "bad.json"]))
    (tmp_path / name).write_bytes(spoiled(data.draw, whole.read_bytes(), kind))
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
