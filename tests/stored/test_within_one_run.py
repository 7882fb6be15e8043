"""One run, its ratios to another baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_sides import LONG, SHORT, times, write_run

from attnbench.compare.paired import compare_within

CELLS = {SHORT: {"fast": times(1e5), "slow": times(2e5), "alike": times(1e5)}}


def test_ratios_are_paired_set_by_set(tmp_path: Path) -> None:
    found = compare_within(write_run(tmp_path / "a.jsonl", cells=CELLS), "fast")
    by_name = {cell.backend: cell for cell in found.cells}
    assert set(by_name) == {"slow", "alike"}
    assert by_name["slow"].verdict == "slower"
    assert by_name["slow"].ratio == pytest.approx(2.0, rel=1e-3)
    assert by_name["slow"].p_value == pytest.approx(2 / 512)
    assert (by_name["slow"].base_ms, by_name["slow"].new_ms) == (pytest.approx(0.1), pytest.approx(0.2))
    assert by_name["alike"].verdict == "same"
    assert found.base == "fast"
    assert found.warnings == ()


def test_the_delta_of_the_run_counts_unless_another_is_said(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl", cells=CELLS, protocol={"delta": 0.5})
    assert {cell.delta for cell in compare_within(path, "slow").cells} == {0.5}
    assert {cell.delta for cell in compare_within(path, "slow", lambda *_: 0.1).cells} == {0.1}
    wide = compare_within(path, "fast", lambda *_: 0.99)
    assert next(cell for cell in wide.cells if cell.backend == "slow").verdict == "slower"


def test_what_has_no_time_says_why(tmp_path: Path) -> None:
    cells = {SHORT: {"a": times(1e5), "b": times(1e5)}, LONG: {"b": times(1e5)}}
    statuses = {
        (LONG, "a"): "unsupported", (SHORT, "c"): "crashed", (LONG, "c"): "mismatch",
    }  # fmt: skip
    found = compare_within(write_run(tmp_path / "r.jsonl", cells=cells, statuses=statuses), "a")
    said = {(cell.case, cell.backend): (cell.verdict, cell.reason) for cell in found.cells}
    assert said == {
        (SHORT, "b"): ("same", ""),
        (SHORT, "c"): ("missing", "crashed (as it is crashed)"),
        (LONG, "b"): ("none", "the baseline a: unsupported (as it is unsupported)"),
        (LONG, "c"): ("mismatch", "as it is mismatch"),
    }


def test_what_is_suspect_has_samples_and_no_ratio(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl", cells=CELLS, statuses={(SHORT, "slow"): "suspect"})
    slow = next(cell for cell in compare_within(path, "fast").cells if cell.backend == "slow")
    assert (slow.ratio, slow.verdict) == (None, "missing")


def test_cases_without_the_baseline_are_counted(tmp_path: Path) -> None:
    cells = {SHORT: {"a": times(1e5), "b": times(1e5)}, LONG: {"b": times(1e5)}}
    path = write_run(tmp_path / "a.jsonl", cells=cells)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(x for x in lines if not ('"backend":"a"' in x and f'"case":"{LONG}"' in x)))
    assert "no record of a on 1 case" in compare_within(path, "a").warnings
