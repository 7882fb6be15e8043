"""Columns and reporters of plugins.

Columns are in every format; a failing one leaves cells empty and is reported once.
"""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from report_records import GQA, RUN
from run_files import manifest_of

from attnbench.plugins.registry import Entry
from attnbench.reports.columns import KEYS, frame
from attnbench.reports.judged import JudgedRecord, ReportPart, judge_all, metric_columns
from attnbench.reports.render import render, reported, run_facts
from attnbench.reports.run import Run
from attnbench.reports.table import View
from attnbench.types.case import Case
from attnbench.types.errors import PluginFailed
from attnbench.types.extensions import Metric, Reporter, Source
from attnbench.types.record import Record

SOURCE = Source("mini", "mini_metrics", "attnbench-mini", "1.0")
TOLD = "attnbench: plugin attnbench-mini 1.0 (mini_metrics): the metric 'price' "


def entry(value: Any, name: str = "price", head: str = "n$/call", digits: int = 2) -> Entry[Metric]:
    return Entry(Metric(name, "what a call costs", head, value, digits), SOURCE)


def judged(*entries: Entry[Metric], records: list[Record] = RUN) -> list[JudgedRecord]:
    (found,) = judge_all([""], [records], metric_columns(entries, [records]))
    return found


def price(record: Record, case: Case) -> float | None:
    return None if record.median_ms is None else record.median_ms / 3.6


def of_lengths(record: Record, case: Case) -> int:
    return case.Lk


TWO = (entry(price), entry(of_lengths, "keys", "keys", 4))


def head_place(lines: list[str]) -> int:
    """The place of the first line with heads of columns."""
    return next(place for place, line in enumerate(lines) if line.startswith("  backend"))


def test_rows_end_with_them_for_every_record() -> None:
    rows = json.loads(render([ReportPart(judged(*TWO))], "json"))
    assert all(list(row) == [*KEYS, "price", "keys"] for row in rows)
    assert [row["keys"] for row in rows if row["case"] == GQA and row["status"] == "ok"] == [128.0] * 5
    assert rows[0]["price"] == 0.5 / 3.6
    assert {row["price"] for row in rows if row["status"] not in ("ok", "suspect")} == {None}


def test_frames_have_them_as_floats_last() -> None:
    table = frame(judged(*TWO), ["price", "keys"])
    assert list(table.columns) == [*KEYS, "price", "keys"]
    assert table["price"].dtype == table["keys"].dtype == "float64"
    assert math.isnan(table.set_index(["case", "backend"]).loc[(GQA, "numpy"), "price"])
    assert list(frame([], ["price"]).columns) == [*KEYS, "price"]


def test_tables_have_them_with_their_heads_and_say_below_what_they_are() -> None:
    lines = render([ReportPart(judged(*TWO))], "table", View(140, legend=True)).splitlines()
    place = head_place(lines)
    assert lines[place].split()[-2:] == ["n$/call", "keys"]
    assert [line.split()[-2:] for line in lines[place + 1 : place + 3]] == [
        ["0.0059", "128"],
        ["0.14", "128"],
    ]
    assert lines[-1] == "keys: what a call costs (attnbench-mini)"
    assert "n$/call: what a call costs (attnbench-mini)" in lines
    assert "what a call costs" not in render([ReportPart(judged(*TWO))], "table", View(140))


@pytest.mark.parametrize(
    ("width", "there", "gone"),
    [(120, {"n$/call", "keys", "×best"}, {"interval"}), (99, {"n$/call", "keys", "±"}, {"×best", "limit"}),
     (95, {"n$/call", "±"}, {"keys"}), (60, {"time", "verdict"}, {"n$/call", "±"})],
)  # fmt: skip
def test_a_narrow_terminal_does_without_ours_first_but_for_the_essential(
    width: int, there: set[str], gone: set[str]
) -> None:
    lines = render([ReportPart(judged(*TWO))], "table", View(width, legend=True)).splitlines()
    heads = set(lines[head_place(lines)].split())
    assert there <= heads
    assert not gone & heads
    assert ("keys: what a call costs (attnbench-mini)" in lines) == ("keys" in heads)


def test_they_are_asked_of_right_records_alone() -> None:
    asked: list[str] = []
    coarse = msgspec.structs.replace(RUN[0], backend="coarse", status="inaccurate")
    judged(entry(lambda record, case: asked.append(record.status)), records=[*RUN, coarse])
    assert set(asked) == {"ok", "inaccurate", "suspect"}


def raising(record: Record, case: Case) -> float:
    raise KeyError(record.backend)


def half(record: Record, case: Case) -> float | str:
    return "much" if record.backend == "flex" else 1.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (raising, f"raised KeyError: 'eager' for eager on {GQA}; 7 of its 7 cells stay empty"),
        (half, f"gave 'much', where a finite number or None is needed, for flex on {GQA}; its cell stays"),
        (lambda *_: math.nan, f"gave nan, where a finite number or None is needed, for eager on {GQA}; 7 of"),
        (lambda *_: True, "gave True, where a finite number or None is needed, for eager on"),
        (lambda *_: 10**400, "where a finite number or None is needed, for eager on"),
        (lambda *_: sys.exit(3), "raised SystemExit: 3 for eager on"),
    ],
)  # fmt: skip
def test_one_that_fails_leaves_cells_empty_and_is_told_once(
    value: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = judged(entry(value), entry(of_lengths, "keys", "keys", 4))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(TOLD)
    assert words in line
    cells = [list(one.added.values()) for one in found]
    assert {added[0] for added in cells} <= {None, 1.0}
    assert cells[4][0] is None
    assert cells[0][1] == 128.0
    lines = render([ReportPart([*found])], "table", View(200, legend=True)).splitlines()
    assert lines[head_place(lines)].split()[-1] == "keys"


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), 0.5])
def test_numbers_of_all_kinds_are_numbers(value: Any) -> None:
    (cell,) = judged(entry(lambda *_: value))[0].added.values()
    assert (cell, type(cell)) == (0.5, float)


def test_what_one_prints_does_not_stand_among_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    judged(entry(lambda *_: print("said")), records=RUN[:1])
    assert capsys.readouterr() == ("", "said\n")


def test_strict_raises_what_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBENCH_STRICT_PLUGINS", "1")
    with pytest.raises(KeyError, match="eager"):
        judged(entry(raising))


def test_values_stay_with_their_run() -> None:
    runs = [RUN[:2], RUN[2:3], []]
    columns = metric_columns([entry(price)], runs)
    assert [[[*one.added.values()] for one in run] for run in judge_all("abc", runs, columns)] == [
        [[0.5 / 3.6], [48.06 / 3.6]], [[0.0213 / 3.6]], [],
    ]  # fmt: skip


AGAIN = "; the records are in their files: attnbench report prints them in another --format"
FAILED = "plugin attnbench-mini 1.0 (mini_metrics): the reporter 'lines' "
ENVIRONMENT = {"cpu": "a cpu", "libraries": {"torch": "2"}}
MANIFEST = manifest_of(command=["attnbench"], protocol={"repetitions": 9}, environment=ENVIRONMENT)


def reporter(render: Any) -> Entry[Reporter]:
    return Entry(Reporter("lines", "a test", render), SOURCE)


@pytest.mark.parametrize(("given", "printed"), [("two\nlines", "two\nlines\n"), ("one\n", "one\n"), ("", "")])
def test_a_text_of_a_reporter_ends_in_a_newline(given: str, printed: str) -> None:
    assert reported(reporter(lambda rows, runs: given), [], []) == printed


def test_facts_are_plain_values_one_for_each_run() -> None:
    two = (Path("a.jsonl"), Path("b.jsonl"))
    first, second = run_facts(Run(two, (MANIFEST, MANIFEST), ((), ()), unfinished=two[1:]))
    assert (first["path"], first["finished"], first["run_id"]) == ("a.jsonl", True, "r")
    assert (second["path"], second["finished"]) == ("b.jsonl", False)
    assert first["environment"] == ENVIRONMENT
    assert first["protocol"] == {"repetitions": 9}
    assert first["command"] == ["attnbench"]


def failing(rows: Any, runs: Any) -> str:
    raise ValueError("no\nsuch column")


def exiting(rows: Any, runs: Any) -> str:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("render", "words"),
    [
        (failing, "raised ValueError: no such column"),
        (exiting, "raised SystemExit: 0"),
        (lambda rows, runs: None, "gave None, where a text is needed"),
        (lambda rows, runs: b"text", "gave b'text', where a text is needed"),
    ],
)
def test_one_that_fails_is_one_sentence_that_ends_the_command_with_3(render: Any, words: str) -> None:
    with pytest.raises(PluginFailed) as failed:
        reported(reporter(render), [], [])
    assert str(failed.value) == f"{FAILED}{words}{AGAIN}"
    assert failed.value.exit_code == 3
