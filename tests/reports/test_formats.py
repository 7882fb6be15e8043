from __future__ import annotations

import csv
import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_records import JUDGED, RUN, TRACED

from attnbench.reports.columns import KEYS, record_row
from attnbench.reports.formats import as_csv, as_json, as_markdown, listing, plain
from attnbench.reports.judged import judge
from attnbench.reports.render import render

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
rows = st.lists(st.fixed_dictionaries({"a": values, "b": texts, "c": values}))


@given(rows)
def test_json_is_a_list_of_the_rows(some: list[dict[str, object]]) -> None:
    text = as_json(some)
    assert json.loads(text) == some
    assert text.endswith("]\n")


def test_json_refuses_what_json_has_not() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json([{"a": math.nan}])


def test_a_run_as_json_has_every_column_and_null_where_there_is_nothing() -> None:
    records = json.loads(render(JUDGED, "json"), parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert [record["backend"] for record in records] == [record.backend for record in RUN]
    assert all(list(record) == list(KEYS) for record in records)
    missing = next(record for record in records if record["status"] == "unavailable")
    assert missing["median_ms"] is None
    assert missing["reason"] == "runs on cuda only"
    assert records[0]["median_ms"] == 0.5
    assert [record["verdict"] for record in records] == [one.verdict for one in JUDGED]


@given(rows)
def test_csv_has_a_line_of_names_and_a_record_for_each_row(some: list[dict[str, object]]) -> None:
    read = list(csv.reader(io.StringIO(as_csv(some, ["b", "a"]), newline="")))
    assert read[0] == ["b", "a"]
    assert len(read) == len(some) + 1


def test_csv_keeps_every_digit() -> None:
    third = 1 / 3
    (read,) = csv.DictReader(io.StringIO(as_csv([{"x": third, "y": None, "z": ["a", "b"]}], "xyz")))
    assert float(read["x"]) == third
    assert (read["y"], read["z"]) == ("", "a, b")


def test_a_run_as_csv() -> None:
    read = list(csv.DictReader(io.StringIO(render(JUDGED, "csv"))))
    assert [row["status"] for row in read] == [record.status for record in RUN]
    assert float(read[2]["median_ms"]) == RUN[2].median_ms


def test_markdown_turns_numbers_right_and_keeps_bars_inside_cells() -> None:
    some = [{"name": "a|b", "n": 1, "x": 0.123456789}, {"name": "two\nlines", "n": None, "x": 2.0}]
    assert as_markdown(some, ["name", "n", "x"]) == (
        "| name | n | x |\n| --- | ---: | ---: |\n| a\\|b | 1 | 0.123457 |\n| two lines |  | 2 |\n"
    )


def test_markdown_shows_what_looks_like_a_tag() -> None:
    """It hands tags to HTML: of "got <class 'int'>" a reader would see "got"."""
    some = [{"why": "got <class 'int'>"}, {"why": "</td><!-- &lt; a & b"}, {"why": "<512 KiB, 1 < 2"}]
    lines = as_markdown(some, ["why"]).splitlines()[2:]
    assert lines == ["| got &lt;class 'int'> |", "| &lt;/td>&lt;!-- &amp;lt; a & b |", "| <512 KiB, 1 < 2 |"]


def test_a_run_as_markdown_has_the_cells_of_the_table() -> None:
    head, rule, *lines = render(JUDGED, "markdown").splitlines()
    heads = [cell.strip() for cell in head.strip("|").split("|")]
    right = {
        name for name, line in zip(heads, rule.strip("|").split("|"), strict=True) if line.strip()[-1] == ":"
    }
    assert heads[:8] == ["case", "backend", "status", "time", "±", "×eager", "interval", "verdict"]
    assert {"time", "×eager", "interval", "limit"} <= right
    assert not right & {"case", "backend", "status", "verdict", "reason"}
    assert len(lines) == len(RUN)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    flash, *others = (dict(zip(heads, line, strict=True)) for line in cells)
    last = [other for other in others if other["case"] == flash["case"]][-1]
    assert (last["status"], last["time"]) == ("error", ""), "fastest first, what has no time last"
    assert (flash["backend"], flash["status"], flash["verdict"]) == ("sdpa_flash", "ok", "faster")
    assert (flash["time"], flash["×eager"], flash["interval"]) == ("21.3 µs", "0.0426", "[0.0424, 0.0428]")
    assert render([], "markdown") == "| case | backend | status | reason |\n| --- | --- | --- | --- |\n"


def test_what_ran_is_always_in_json_and_csv_and_in_markdown_when_asked_for() -> None:
    judged = judge(TRACED)
    compiled = json.loads(render(judged, "json"))[3]
    assert compiled["backend"] == "compiled"
    assert (compiled["ran"], compiled["kernel_of"]) == (
        "compiled code; _scaled_dot_product_flash_attention_for_cpu",
        "sdpa_flash",
    )
    read = list(csv.DictReader(io.StringIO(render(judged, "csv"))))
    assert read[3]["ran"] == compiled["ran"]
    assert (read[0]["kernel_of"], read[6]["ran"]) == ("", "")
    plain_lines = render(judged, "markdown").splitlines()
    assert "bmm x2" not in "".join(plain_lines)
    assert "| compiled → sdpa_flash | ok |" in plain_lines[3]
    lines = render(judged, "markdown", trace=True).splitlines()
    assert lines[0].endswith("| ran |")
    assert any(line.endswith("| mul, bmm x2, add, _softmax |") for line in lines)


@given(st.lists(st.fixed_dictionaries({"a": texts, "b": values}), min_size=1))
def test_every_line_of_markdown_has_the_same_cells(some: list[dict[str, object]]) -> None:
    lines = as_markdown(some, ["a", "b"]).split("\n")[:-1]
    assert len(lines) == len(some) + 2
    assert {line.replace("\\|", "").count("|") for line in lines} == {3}


def test_cells() -> None:
    assert [plain(value) for value in (None, True, False, 3, 0.5, "a  b", ["x", "y"], [])] == [
        "", "yes", "no", "3", "0.5", "a b", "x, y", "",
    ]  # fmt: skip


def test_listings_show_some_columns_and_give_programs_all() -> None:
    some = [{"name": "dot", "formula": "q·k", "plugin": "attnbench"}]
    assert listing(some, ["name", "formula"], "table") == "name  formula\ndot   q·k\n"
    assert listing(some, ["name", "formula"], "csv") == "name,formula,plugin\ndot,q·k,attnbench\n"
    assert json.loads(listing(some, ["name"], "json")) == some
    assert listing(some, ["name"], "markdown") == "| name |\n| --- |\n| dot |\n"
    assert listing([], ["name"], "json") == "[]\n"
    assert listing([], ["name"], "csv") == "name\n"


def test_a_listing_keeps_its_width_and_never_cuts_a_name() -> None:
    some = [{"name": "a_name_that_commands_take", "words": "many words " * 20}]
    lines = listing(some, ["name", "words"], "table", width=70).splitlines()
    assert max(map(len, lines)) <= 70
    assert lines[1].startswith("a_name_that_commands_take  many words")


def test_rows_are_what_render_prints() -> None:
    assert json.loads(render(JUDGED[:3], "json")) == [record_row(one) for one in JUDGED[:3]]


def test_a_list_never_folds_numbers_or_words_however_narrow() -> None:
    rows = [{"case": "a/long/id" * 9, "about_s": 1789.5, "what": f"see {'x' * 40} there"}]
    head, *lines = listing(rows, ["case", "about_s", "what"], "table", width=60).splitlines()
    assert head.split() == ["case", "about_s", "what"]
    assert lines[0].split() == ["a/long/id" * 9, "1789.5", "see"]
    assert [line.strip() for line in lines[1:]] == ["x" * 40, "there"]
