from __future__ import annotations

import msgspec
import pytest
from report_records import GQA, LAYER, RUN, failed, ok

from attnbench.reports.judged import judge
from attnbench.stats.verdict import FALSE_DISCOVERIES
from attnbench.types.record import Record


def test_every_record_in_its_place_with_its_word() -> None:
    judged = judge(RUN)
    assert [one.record for one in judged] == RUN
    words = {one.record.backend: one.verdict for one in judged if one.record.case == GQA}
    assert words == {
        "eager": "baseline",
        "nn_multihead_attention": "slower",
        "sdpa_flash": "faster",
        "compiled": "same",
        "flex": "unclear",
    } | dict.fromkeys([record.backend for record in RUN if record.status != "ok"])


def test_only_what_is_unclear_has_a_reason_and_only_what_was_compared_a_p_value() -> None:
    for one in judge(RUN):
        assert bool(one.why) == (one.verdict == "unclear")
        assert (one.p_adjusted is not None) == (one.verdict in ("faster", "slower", "same", "unclear"))


def test_a_suspect_ratio_and_one_without_a_baseline_get_no_word() -> None:
    suspect = msgspec.structs.replace(ok("bmm", 0.1), status="suspect", reason="its clock")
    alone = ok("bmm", 0.1, ratio=None, ratio_low=None, ratio_high=None, p_value=None)
    assert [one.verdict for one in judge([suspect, alone, failed("mine", "crashed", "")])] == [None] * 3


def cells(count: int) -> list[Record]:
    return [ok("bmm", 0.25, p_value=0.004, case=LAYER + f"/seed{n}") for n in range(count)]


def test_p_values_are_adjusted_over_all_records_given() -> None:
    (few,) = {one.p_adjusted for one in judge(cells(2))}
    (one_small, *_) = judge([*cells(1), *(ok(f"other{n}", 0.5, p_value=0.9) for n in range(99))])
    assert few == pytest.approx(0.004)
    assert one_small.p_adjusted == pytest.approx(0.4)
    assert one_small.p_adjusted > FALSE_DISCOVERIES
    assert one_small.verdict == "unclear"


def test_nothing_is_nothing() -> None:
    assert judge([]) == []


def test_each_knows_the_run_it_is_of() -> None:
    assert {one.run for one in judge(RUN, "20260101T000000-0a1b2c3d")} == {"20260101T000000-0a1b2c3d"}
    assert {one.run for one in judge(RUN)} == {""}
