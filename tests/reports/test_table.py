from __future__ import annotations

import msgspec
import pytest
from report_records import RUN, failed, ok
from syrupy.assertion import SnapshotAssertion

from attnbench.reports.judged import JudgedRecord, ReportPart, judge
from attnbench.reports.table import View, fitting
from attnbench.reports.table import table as judged_table
from attnbench.types.record import Record


def table(
    records: list[Record], width: int, *, colour: bool = False, trace: bool = False, legend: bool = True
) -> str:
    return judged_table([ReportPart(judge(records))], View(width, colour, trace, legend=legend))


@pytest.mark.pinned
@pytest.mark.parametrize("width", [80, 120])
def test_a_run(width: int, snapshot: SnapshotAssertion) -> None:
    assert table(RUN, width) == snapshot


@pytest.mark.parametrize("width", [10, 60, 66, 72, 80, 93, 100, 120, 200])
def test_nothing_but_ids_is_wider_than_the_terminal(width: int) -> None:
    ids = {record.case for record in RUN}
    lines = [line for line in table(RUN, width).splitlines() if line not in ids]
    assert max(map(len, lines)) <= max(width, 60)


def test_ratios_of_different_baselines_do_not_share_one_head() -> None:
    mixed = [ok("eager", 1.0), ok("bmm", 1.0, baseline="sdpa_math")]
    assert "time/sdpa" not in table(mixed, 120)
    assert "time/eager" not in table(mixed, 120)
    assert "ratio" in table(mixed, 120).splitlines()[1]


def cells(records: list[Record], width: int = 160) -> dict[str, dict[str, str | None]]:
    """The cells of each backend by the head of their column."""
    judged = judge(records)
    columns, _ = fitting(judged, width)
    return {one.record.backend: {c.head: c.cell(one) for c in columns} for one in judged}


def test_rates_have_no_more_digits_than_the_time() -> None:
    rough = cells([ok("bmm", 0.04413, low_ms=0.030, high_ms=0.070)])["bmm"]
    assert (rough["time"], rough["TFLOP/s"], rough["limit"]) == ("44 µs", "1.1", "37%")


def test_a_ratio_to_the_fastest_that_may_be_1_is_a_tie_and_a_wide_interval_has_no_number() -> None:
    def over(ratio: float, low: float, high: float) -> Record:
        found = {"ratio_to_best": ratio, "ratio_to_best_low": low, "ratio_to_best_high": high}
        return ok("sdpa_flash", 4.0, low_ms=2.0, high_ms=43.0, best="bmm", **found)

    fast = ok("bmm", 3.9, best="bmm", ratio_to_best=1.0)
    for ratio, low, high, told in ((2.0, 0.4, 9.0, "≈"), (0.98, 0.97, 1.0, "≈"), (2.0, 1.9, 2.1, "2.0")):
        row = cells([fast, over(ratio, low, high)])["sdpa_flash"]
        assert (row["×best"], row["±"]) == (told, ">100%")


def test_too_few_repetitions_for_an_interval_are_named_with_the_remedy() -> None:
    few = ok(
        "bmm", 0.5128, repetitions=2, p_value=0.5, low_ms=None, high_ms=None, confidence=None, ratio_low=None,
        ratio_high=None, ratio_confidence=None,
    )  # fmt: skip
    row = cells([few])["bmm"]
    assert [row[head] for head in ("time", "±", "time/eager", "interval", "verdict")] == [
        "510 µs", "?", "1.0?", "?", "unclear",
    ]  # fmt: skip
    text = " ".join(table([ok("eager", 0.5), few], 120).split())
    assert "?: no interval, which needs 3 repetitions: omit --repetitions" in text
    assert "unclear, 1 of 1 verdict: " in text
    assert "--repetitions 9" in text
    assert "too few repetitions" not in table(RUN, 120)


def test_many_reasons_are_cut_short() -> None:
    few = [JudgedRecord(ok(f"b{n}", 0.6), "unclear", 0.5, f"reason {n // 2}") for n in range(3, 12)]
    lines = [
        line for line in judged_table([ReportPart(few)], View(200)).splitlines() if line.startswith("unclear")
    ]
    assert lines == [
        "unclear, 2 of 9 verdicts: reason 2",
        "unclear, 2 of 9 verdicts: reason 3",
        "unclear, 2 of 9 verdicts: reason 4",
        "unclear, 3 more: see verdict_reason in --format json",
    ]


def test_text_in_brackets_is_text() -> None:
    text = table([failed("odd", "error", "[red]not markup[/red] :smile: {0}")], 80)
    assert "error: odd: [red]not markup[/red] :smile: {0}" in text


def test_verdicts_have_colours_only_if_wanted() -> None:
    assert "\x1b" not in table(RUN, 80)
    text = table(RUN, 120, colour=True)
    assert "\x1b[32mfaster" in text
    assert "\x1b[33munclear" in text


def test_the_kernel_is_always_shown_and_the_operations_only_with_trace() -> None:
    plain = [ok(name, 0.5, ran=["mul", "bmm x2"]) for name in ("eager", "mine")]
    traced = [*plain, ok("compiled", 0.0214, ran=["compiled code"], kernel_of="sdpa_flash")]
    text = table(traced, 100)
    assert "compiled → sdpa_flash" in text
    assert "ran: " not in text
    assert "ran: eager, mine: mul, bmm x2\n" in table(traced, 100, trace=True)
    doubted = ok("compiled", 0.1, status="suspect", reason="too fast", kernel_of="sdpa_flash")
    assert "suspect: compiled → sdpa_flash at 100 µs: too fast" in table([doubted], 100)


def test_an_inaccurate_backend_stands_below_with_time_and_ratio_and_an_accepted_one_in_its_place() -> None:
    coarse = ok("fast", 0.1, status="inaccurate", reason="as exact as bfloat16", arithmetic="bfloat16")
    text = table([ok("eager", 0.5), coarse], 100)
    assert "inaccurate: fast (bfloat16) at 100 µs, 0.2000 × eager: as exact as bfloat16" in text
    accepted = msgspec.structs.replace(coarse, status="ok", reason="")
    (row,) = [line for line in table([ok("eager", 0.5), accepted], 120).splitlines() if "bfloat16" in line]
    assert row.split()[:2] == ["fast", "(bfloat16)"]
    assert "faster" in row
