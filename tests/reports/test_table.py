from __future__ import annotations

import msgspec
import pytest
from report_records import GQA, RUN, accuracy, failed, ok
from syrupy.assertion import SnapshotAssertion

from attnbench.reports.table import table


@pytest.mark.parametrize("width", [80, 120])
def test_a_run(width: int, snapshot: SnapshotAssertion) -> None:
    assert table(RUN, width) == snapshot


def test_a_check_has_no_times(snapshot: SnapshotAssertion) -> None:
    checked = [
        msgspec.structs.replace(
            record, median_ms=None, ratio=None, tflops=None, gbps=None, peak_extra_bytes=None, sets=0
        )
        for record in RUN
        if record.status != "suspect"
    ]
    text = table(checked, 120)
    assert text == snapshot
    assert "time is the median" not in text


def test_nothing(snapshot: SnapshotAssertion) -> None:
    assert table([], 80) == "0 cases: no records\n"


@pytest.mark.parametrize("width", [10, 60, 66, 72, 80, 93, 100, 120, 200])
def test_nothing_but_ids_is_wider_than_the_terminal(width: int) -> None:
    ids = {record.case for record in RUN}
    lines = [line for line in table(RUN, width).splitlines() if line not in ids]
    assert max(map(len, lines)) <= max(width, 60)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_backend_and_both_errors_are_shown_at_any_width(width: int) -> None:
    text = table(RUN, width)
    words = " ".join(text.split())
    for record in RUN:
        assert record.backend in words or width == 60
        assert " ".join(record.reason.split()) in words
    assert "rms/ref" in text
    assert "max/ref" in text


def test_a_block_is_sorted_by_time_and_columns_align_between_cases() -> None:
    lines = table(RUN, 120).splitlines()
    heads = [line for line in lines if line.startswith("  backend")]
    assert len(set(heads)) == 1
    first = lines.index(heads[0])
    names = [line.split()[0] for line in lines[first + 1 : first + 4]]
    assert names == ["sdpa_flash", "eager", "nn_multihead_attention"]


def test_no_escape_codes_unless_asked_for() -> None:
    assert "\x1b" not in table(RUN, 80)
    assert "\x1b[31m" in table(RUN, 80, colour=True)


def test_text_in_brackets_is_text() -> None:
    text = table([failed("odd", "error", "[red]not markup[/red] :smile: {0}")], 80)
    assert "error: odd: [red]not markup[/red] :smile: {0}" in text


def test_ratios_of_different_baselines_do_not_share_one_head() -> None:
    mixed = [ok("eager", 1.0), msgspec.structs.replace(ok("bmm", 1.0), baseline="sdpa_math")]
    assert "×" not in table(mixed, 120)
    assert "ratio" in table(mixed, 120).splitlines()[1]


def test_notes_are_gathered_and_sampled_rows_are_said() -> None:
    noted = [
        msgspec.structs.replace(ok(name, 1.0), notes=["kept over 3 sets"], accuracy=accuracy(rows=64))
        for name in ("flex", "compiled")
    ]
    text = table(noted, 120)
    assert "  note: flex, compiled: kept over 3 sets\n" in text
    assert "a sample of query rows was checked" in text
    assert "a sample of query rows" not in table([ok("eager", 1.0)], 120)


def test_a_case_where_nothing_was_right_has_no_empty_block() -> None:
    lines = table([failed("mine", "crashed", "ended by signal 11")], 80).splitlines()
    assert lines[:3] == [GQA, "  crashed: mine: ended by signal 11", ""]
