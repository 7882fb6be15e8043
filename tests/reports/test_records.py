"""Records as verdicts, rows, frames, JSON, CSV, Markdown, and an exit status."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_records import GQA, JUDGED, LAYER, RUN, accuracy, failed, ok

from attnbench.reports.columns import KEYS, frame, record_row
from attnbench.reports.formats import as_csv, as_json, as_markdown, listing, plain
from attnbench.reports.judged import JudgedRecord, judge
from attnbench.reports.render import render
from attnbench.reports.run import exit_code
from attnbench.types.status import STATUSES

EXIT_CODES = {
    "ok": 0, "inaccurate": 0, "mismatch": 1, "suspect": 0, "unsupported": 0, "unavailable": 0,
    "out_of_memory": 3, "timeout": 3, "crashed": 3, "error": 3,
    "interrupted": 3, "unjudged": 4,
}  # fmt: skip
NAMED = EXIT_CODES | {"suspect": 3, "unsupported": 3, "unavailable": 3}


@pytest.mark.parametrize("status", STATUSES)
def test_one_record_among_good_ones_decides_the_exit_status(status: str) -> None:
    for records in itertools.permutations([ok("eager", 1.0), failed("mine", status, "why"), ok("bmm", 2.0)]):
        assert exit_code(records) == EXIT_CODES[status]
        assert exit_code(records, {"eager", "bmm"}) == EXIT_CODES[status]
        assert exit_code(records, {"mine"}) == NAMED[status]


def test_outputs_less_exact_than_declared_fail_a_run() -> None:
    inexact = failed("mine", "inaccurate", "why", failed_check="values", arithmetic="bfloat16")
    assert exit_code([ok("eager", 1.0), inexact], {"mine"}) == 1


def test_exit_statuses_of_several_records() -> None:
    wrong = [failed("a", "crashed", ""), failed("b", "mismatch", ""), failed("c", "timeout", "")]
    assert {exit_code(some) for some in itertools.permutations(wrong)} == {1}
    assert exit_code([]) == 0
    assert exit_code([ok("mine", 1.0), failed("mine", "unsupported", "")], {"mine"}) == 0
    assert exit_code([failed("mine", "unsupported", ""), failed("mine", "unavailable", "")], {"mine"}) == 3


def test_a_frame_has_a_row_for_each_record_and_every_column() -> None:
    table = frame(JUDGED)
    assert list(table.columns) == list(KEYS)
    assert table["backend"].tolist() == [record.backend for record in RUN]
    assert table["status"].tolist() == [record.status for record in RUN]
    row = frame(judge([ok("eager", 0.5, scale=2.0)], "r1")).iloc[0]
    assert (row["median_ms"], row["case"], row["run"], row["peak_extra_bytes"]) == (0.5, GQA, "r1", 4 * 2**20)
    errors = [row[name] for name in ("rms_error", "error_budget", "max_error_budget")]
    assert errors == pytest.approx([3e-7, 2.0, 2.2])
    assert row[["B", "H", "Hkv", "Lq", "Lk", "D", "Dv"]].tolist() == [2, 8, 2, 128, 128, 64, 64]
    assert row[["mask", "dtype", "device", "pass", "cache"]].tolist() == [
        "causal", "float32", "cpu", "forward", "hot",
    ]  # fmt: skip
    assert pd.isna(row["E"])
    assert frame(judge([ok("eager", 1.0, case=LAYER)]))["E"].tolist() == [256]


def test_dtypes_of_a_frame_do_not_depend_on_its_values() -> None:
    whole = frame(JUDGED)
    numbers = whole.select_dtypes("number").columns
    assert len(numbers) == 52
    kinds = whole.dtypes[numbers]
    for some in ([], [one for one in JUDGED if one.record.status == "unsupported"]):
        assert frame(some).dtypes[numbers].equals(kinds)
    assert (kinds["median_ms"], kinds["peak_extra_bytes"], kinds["Lq"]) == ("float64", "Int64", "int64")


def test_what_was_not_measured_is_missing() -> None:
    table = frame(JUDGED)
    table = table[table["case"] == GQA].set_index("backend")
    assert table.loc["sdpa_cudnn", ["median_ms", "error_budget", "peak_extra_bytes"]].isna().all()
    assert math.isnan(table.loc["chunked", "median_ms"])
    assert table.loc["chunked", "error_budget"] == pytest.approx(2e6)
    assert table.loc["eager", ["p_value", "p_adjusted", "ratio_low"]].isna().all()
    assert pd.isna(table.loc["numpy", "verdict"])


def test_rows_hold_neither_nan_nor_infinity() -> None:
    exact_reference = msgspec.structs.replace(accuracy(), reference_rms=0.0, max_error=math.nan)
    odd = ok("bmm", 1.0, accuracy=exact_reference, ratio=math.inf, notes=["restarted 3 times", "contended"])
    row = record_row(JudgedRecord(odd, p_adjusted=math.nan))
    assert (row["error_budget"], row["max_error"], row["ratio"], row["p_adjusted"]) == (None,) * 4
    assert (row["rms_error"], row["notes"]) == (1.5e-7, "restarted 3 times; contended")


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts


@given(st.lists(st.fixed_dictionaries({"a": values, "b": texts, "c": values})))
def test_any_rows_as_json_csv_and_markdown(rows: list[dict[str, object]]) -> None:
    assert json.loads(as_json(rows)) == rows
    read = list(csv.reader(io.StringIO(as_csv(rows, ["b", "a"]), newline="")))
    assert (read[0], len(read)) == (["b", "a"], len(rows) + 1)
    lines = as_markdown(rows, ["a", "b"]).split("\n")[:-1]
    assert len(lines) == len(rows) + 2
    assert {line.replace("\\|", "").count("|") for line in lines} == {3}


def test_values_in_each_format() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json([{"a": math.nan}])
    (read,) = csv.DictReader(io.StringIO(as_csv([{"x": 1 / 3, "y": None, "z": ["a", "b"]}], "xyz")))
    assert (float(read["x"]), read["y"], read["z"]) == (1 / 3, "", "a, b")
    assert [plain(value) for value in (None, True, False, 3, 0.5, "a  b", ["x", "y"], [])] == [
        "", "yes", "no", "3", "0.5", "a b", "x, y", "",
    ]  # fmt: skip
    # Markdown hands tags to HTML: of "got <class 'int'>" a reader would see "got".
    tags = [{"why": "got <class 'int'>"}, {"why": "</td><!-- &lt; a & b"}, {"why": "<512 KiB, 1 < 2"}]
    lines = as_markdown(tags, ["why"]).splitlines()[2:]
    assert lines == ["| got &lt;class 'int'> |", "| &lt;/td>&lt;!-- &amp;lt; a & b |", "| <512 KiB, 1 < 2 |"]


@pytest.mark.parametrize(
    ("words", "written"),
    [("@name fixed #12", "@&#8203;name fixed #&#8203;12"), ("an/other#3", "an/other#&#8203;3"),
     ("GH-7, gh-8", "GH-&#8203;7, gh-&#8203;8"), ("a@b.org", "a@&#8203;b.org"),
     ("sdpa@base", "sdpa@base"), ("softcap@c=50", "softcap@c=50"), ("# of 3, @ 2 GHz", "# of 3, @ 2 GHz")],
)  # fmt: skip
def test_markdown_in_a_comment_names_nobody_and_no_issue(words: str, written: str) -> None:
    assert as_markdown([{"why": words}], ["why"]).splitlines()[2] == f"| {written} |"


def test_without_rows_there_are_heads_alone() -> None:
    assert render([], "markdown") == "| case | backend | status | reason |\n| --- | --- | --- | --- |\n"
    assert (listing([], ["name"], "json"), listing([], ["name"], "csv")) == ("[]\n", "name\n")


def test_a_listing_fits_and_never_cuts_a_name_a_number_or_a_word() -> None:
    some = [{"name": "a_name_that_commands_take", "words": "many words " * 20}]
    lines = listing(some, ["name", "words"], "table", width=70).splitlines()
    assert max(map(len, lines)) <= 70
    assert lines[1].startswith("a_name_that_commands_take  many words")
    rows = [{"case": "a/long/id" * 9, "about_s": 1789.5, "what": f"see {'x' * 40} there"}]
    head, *lines = listing(rows, ["case", "about_s", "what"], "table", width=60).splitlines()
    assert head.split() == ["case", "about_s", "what"]
    assert lines[0].split() == ["a/long/id" * 9, "1789.5", "see"]
    assert [line.strip() for line in lines[1:]] == ["x" * 40, "there"]
