"""A run of a suite with counts ends with what all calls take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import attnbench
from attnbench.reports.render import render
from attnbench.types.record import Shard

REFERENCE = Path(__file__).parents[2] / "results" / "reference-lengths.jsonl"


def test_the_sum_of_each_backend_and_where_it_loses_most() -> None:
    run = attnbench.load(REFERENCE)
    (head,) = run.manifests
    counts = {case: 1000 if "Lq128" in case else 1 for case in head.cases}
    counted = replace(run, manifests=(msgspec.structs.replace(head, counts=counts),))
    (answer,) = counted.answers
    times = {(one.case, one.backend): one.median_ms for one in run.records if one.median_ms is not None}
    for total in answer.totals:
        if total.backend is not None:
            wanted = sum(counts[case] * times[case, total.backend] for case in head.cases)
            # The median of sums is near the sum of medians, which records have.
            assert total.ms == pytest.approx(wanted, rel=0.05)
            assert total.interval.low <= total.ms <= total.interval.high
    assert {one.backend for one in answer.totals} == {None, *(record.backend for record in run.records
                                                               if record.status == "ok")}  # fmt: skip
    text = render(counted.parts, "table")
    head_line, first, *others = text[text.index("all counted calls") :].splitlines()
    assert head_line.split() == ["all", "counted", "calls", "time", "interval", "loses", "most", "in", "case"]
    assert first.startswith("the fastest of each case")
    (slow,) = [line for line in others if line.startswith("sdpa_math")]
    # At L = 128 it takes 0.34 · 0.496 ms longer than eager, a thousand times.
    assert slow.endswith("220 ms in 5, 170 ms in 1, 44 ms in 4")
    assert "| all counted calls | time | interval | loses most in case |" in render(counted.parts, "markdown")
    step = [row for row in counted.summary_rows if row["kind"] == "step"]
    assert [row["median_ms"] for row in step] == [total.ms for total in answer.totals]


def test_a_shard_has_no_total_of_a_step() -> None:
    run = attnbench.load(REFERENCE)
    (head,) = run.manifests
    shard = Shard(1, 2, [*head.cases, "another"])
    part = msgspec.structs.replace(head, counts=dict.fromkeys(head.cases, 2), shard=shard)
    (answer,) = replace(run, manifests=(part,)).answers
    assert answer.leads
    assert answer.totals == ()


def test_a_case_without_a_time_is_named_and_left_out_of_the_sum() -> None:
    run = attnbench.load(REFERENCE)
    (head,) = run.manifests
    lost = head.cases[2]
    records = tuple(
        msgspec.structs.replace(one, status="unsupported", median_ms=None) if one.case == lost else one
        for one in run.records
    )
    counted = replace(
        run,
        by_file=(records,),
        manifests=(msgspec.structs.replace(head, counts=dict.fromkeys(head.cases, 2)),),
    )
    (answer,) = counted.answers
    assert answer.totals[0].by_case.keys() == {*head.cases} - {lost}
    assert "all counted calls but case 3 " in render(counted.parts, "table")
