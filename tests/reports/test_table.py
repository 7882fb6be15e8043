from __future__ import annotations

import msgspec
import pytest
from report_records import GQA, JUDGED, LAYER, RUN, TRACED, accuracy, failed, ok
from syrupy.assertion import SnapshotAssertion

from attnbench.reports.judged import Judged, judge
from attnbench.reports.table import fitting
from attnbench.reports.table import table as judged_table
from attnbench.types.record import Record


def table(records: list[Record], width: int, *, colour: bool = False, trace: bool = False) -> str:
    return judged_table(judge(records), width, colour=colour, trace=trace)


@pytest.mark.parametrize("width", [80, 120])
def test_a_run(width: int, snapshot: SnapshotAssertion) -> None:
    assert table(RUN, width) == snapshot


def test_a_check_has_no_times(snapshot: SnapshotAssertion) -> None:
    checked = [
        msgspec.structs.replace(
            record,
            median_ms=None,
            low_ms=None,
            high_ms=None,
            ratio=None,
            p_value=None,
            ratio_to_best=None,
            limit_share=None,
            tflops=None,
            gbps=None,
            peak_extra_bytes=None,
            sets=0,
        )
        for record in RUN
        if record.status != "suspect"
    ]
    text = table(checked, 120)
    assert text == snapshot
    assert "time: median" not in text


def test_what_ran_and_whose_kernel_it_is(snapshot: SnapshotAssertion) -> None:
    text = table(TRACED, 100, trace=True)
    assert text == snapshot
    assert max(map(len, text.splitlines())) <= 100


def test_whose_kernel_it_is_is_always_shown_and_what_ran_when_asked_for() -> None:
    text = table(TRACED, 100)
    assert "compiled → sdpa_flash" in text
    assert "a → b: " in text
    assert "ran: " not in text
    doubted = ok("compiled", 0.1, status="suspect", reason="too fast", kernel_of="sdpa_flash")
    assert "suspect: compiled → sdpa_flash at 100 µs: too fast" in table([doubted], 100)
    assert "→" not in table(RUN, 100)
    assert table(RUN, 100, trace=True) == table(RUN, 100)


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
    names = [line.split()[0] for line in lines[first + 1 : first + 6]]
    assert names == ["sdpa_flash", "eager", "compiled", "flex", "nn_multihead_attention"]


def test_no_escape_codes_unless_asked_for() -> None:
    assert "\x1b" not in table(RUN, 80)
    assert "\x1b[31m" in table(RUN, 80, colour=True)


def test_text_in_brackets_is_text() -> None:
    text = table([failed("odd", "error", "[red]not markup[/red] :smile: {0}")], 80)
    assert "error: odd: [red]not markup[/red] :smile: {0}" in text


def test_ratios_of_different_baselines_do_not_share_one_head() -> None:
    mixed = [ok("eager", 1.0), ok("bmm", 1.0, baseline="sdpa_math")]
    assert "×sdpa" not in table(mixed, 120)
    assert "×eager" not in table(mixed, 120)
    assert "ratio" in table(mixed, 120).splitlines()[1]


def test_notes_are_gathered_and_sampled_rows_are_said() -> None:
    noted = [
        msgspec.structs.replace(ok(name, 1.0), notes=["kept over 3 sets"], accuracy=accuracy(rows=64))
        for name in ("flex", "compiled")
    ]
    text = table(noted, 120)
    assert "  note: flex, compiled: kept over 3 sets\n" in text
    assert "checked on a sample of rows" in text
    assert "a sample of query rows" not in table([ok("eager", 1.0)], 120)


def test_a_case_where_nothing_was_right_has_no_empty_block() -> None:
    lines = table([failed("mine", "crashed", "ended by signal 11")], 80).splitlines()
    assert lines[:3] == [GQA, "  crashed: mine: ended by signal 11", ""]


def cells(records: list[Record], width: int = 160) -> dict[str, dict[str, str | None]]:
    """The cells of each backend by the head of their column."""
    judged = judge(records)
    columns, _ = fitting(judged, width)
    return {one.record.backend: {c.head: c.cell(one) for c in columns} for one in judged}


@pytest.mark.parametrize("width", [60, 66, 72, 80, 93, 100, 120, 200])
def test_time_ratio_and_verdict_are_shown_at_any_width(width: int) -> None:
    lines = table(RUN, width).splitlines()
    for words in (["time", "×eager", "verdict"], ["21.3 µs", "0.0426", "faster"], ["1.03", "unclear"]):
        assert any(all(word in line for word in words) for line in lines), words


@pytest.mark.parametrize("width", [80, 93, 100, 120, 200])
def test_a_ratio_is_never_without_its_interval_where_there_is_room(width: int) -> None:
    columns, widths = fitting([one for one in JUDGED if one.record.status == "ok"], width)
    heads = [column.head for column in columns]
    assert heads[heads.index("×eager") + 1] in ("interval", "±")
    assert ("interval" in heads) == (width >= 120)
    assert sum(widths) + 2 * len(widths) <= width


def test_what_is_exact_has_no_digits_and_no_interval() -> None:
    eager = cells(RUN[:5])["eager"]
    assert (eager["×eager"], eager["interval"], eager["verdict"]) == ("1", None, "baseline")
    assert cells(RUN[:5])["sdpa_flash"]["×best"] == "1"


def test_a_ratio_to_the_best_has_the_digits_that_were_measured() -> None:
    loose = ok("bmm", 0.6, off=0.2, best="flex", ratio_to_best=1.2345)
    tight = ok("chunked", 0.6, off=0.002, best="flex", ratio_to_best=1.2345)
    base = ok("eager", 0.5, low_ms=0.4, high_ms=0.6, best="flex", ratio_to_best=1.2345)
    found = cells([base, loose, tight])
    assert [found[name]["×best"] for name in ("eager", "bmm", "chunked")] == ["1.2", "1.2", "1.23"]


def test_what_is_made_of_the_time_has_no_more_digits_than_the_time() -> None:
    rough = cells([ok("bmm", 0.04413, low_ms=0.030, high_ms=0.070)])["bmm"]
    assert (rough["time"], rough["TFLOP/s"], rough["limit"]) == ("40 µs", "1.1", "40%")


def test_too_few_sets_for_an_interval_are_said_with_the_remedy() -> None:
    few = ok(
        "bmm", 0.5128, sets=2, p_value=0.5, low_ms=None, high_ms=None, confidence=None, ratio_low=None,
        ratio_high=None, ratio_confidence=None,
    )  # fmt: skip
    row = cells([few])["bmm"]
    assert [row[head] for head in ("time", "±", "×eager", "interval", "verdict")] == [
        "510 µs", "?", "1.0?", "?", "unclear",
    ]  # fmt: skip
    text = " ".join(table([ok("eager", 0.5), few], 120).split())
    assert "?: too few sets for an interval, which needs 6; a verdict needs 9: omit --sets" in text
    assert "unclear, 1 of 1: " in text
    assert "--sets 9" in text
    assert "too few sets" not in table(RUN, 120)


def test_why_rows_are_unclear_is_said_once_for_all_of_them() -> None:
    unclear = [
        ok(f"b{n}", 0.513, off=0.03, p_value=0.5, case=case) for n in range(8) for case in (GQA, LAYER)
    ]
    text = table([ok("eager", 0.5), *unclear], 200)
    (line,) = [line for line in text.splitlines() if line.startswith("unclear")]
    assert line.startswith("unclear, 16 of 16: ")
    assert "--budget" in line


def test_many_reasons_are_cut_short() -> None:
    few = [Judged(ok(f"b{n}", 0.6), "unclear", 0.5, f"reason {n // 2}") for n in range(3, 12)]
    lines = [line for line in judged_table(few, 200).splitlines() if line.startswith("unclear")]
    assert lines == [
        "unclear, 2 of 9: reason 2",
        "unclear, 2 of 9: reason 3",
        "unclear, 2 of 9: reason 4",
        "unclear, 3 more: see verdict_reason in --format json",
    ]


def test_the_footer_says_what_the_words_mean_in_this_run() -> None:
    text = " ".join(table(RUN, 200).split())
    assert "lies within 2 % of 1" in text
    assert "Benjamini-Hochberg over the 4 ratios of the run" in text
    wide = " ".join(table([ok("bmm", 0.6, delta=0.005)], 200).split())
    assert "lies within 0.5 % of 1" in wide
    assert "over the 1 ratio of the run" in wide
    assert "verdict" not in table([failed("mine", "crashed", "why")], 200)


def test_words_of_verdicts_have_their_colours() -> None:
    text = table(RUN, 120, colour=True)
    assert "\x1b[32mfaster" in text
    assert "\x1b[33munclear" in text
