"""The page of a live comparison: its sides are told, and how they compare comes first."""

from __future__ import annotations

from page_runs import around, case, run_of

from attnbench.reports.html.facts import protocol_facts
from attnbench.reports.html.ratios import ratio_chart
from attnbench.reports.html.sentences import summary
from attnbench.reports.html.shown import Shown, shown
from attnbench.runner.run_file import StoredRun

SIDES = {"base": {"name": "main (0a1b2c3d4)"}, "head": {"name": "uncommitted work on 5e6f70819"}}
OTHERS = {f"other{i}@{side}": around(0.5, i) for i in range(7) for side in ("base", "head")}
TIMES = {
    case(64): {
        "mine@base": around(1.0, 1), "mine@head": around(1.3, 2),
        "better@base": around(1.0, 3), "better@head": around(0.7, 4),
    }
}  # fmt: skip


def live(finished: bool = True, **others: list[int]) -> StoredRun:
    times = {text: {**those, **others} for text, those in TIMES.items()}
    return run_of(times, sides=SIDES, name="live.jsonl", finished=finished)


def of(run: StoredRun) -> Shown:
    return shown([run])[0]


def test_sides_are_told_before_anything_and_backends_are_counted_once() -> None:
    sides, scope, *_ = (one.text for one in summary(of(live())))
    assert sides == (
        "Two sides were measured beside each other: @base is main (0a1b2c3d4), @head is uncommitted work on "
        "5e6f70819. The baseline of each backend is itself on the base side."
    )
    assert scope.startswith("2 backends, on two sides, on 1 case: of 4 outcomes 4 are ok")


def test_what_became_slower_is_told_first_however_many_did_not() -> None:
    sentences = summary(of(live(**OTHERS)))
    said = [one.text for one in sentences]
    assert [one.text.split("@")[0] for one in sentences if one.tone == "bad"] == ["mine"]
    compared = [text for text in said if " against " in text]
    assert compared[0].startswith("mine@head against mine@base: slower in its one case")
    assert any(text.startswith("other4@base and 13 others share the lead") for text in said)
    leads = next(place for place, text in enumerate(said) if "the lead" in text or "the fastest" in text)
    assert said.index(compared[-1]) < leads


def test_nobody_is_told_to_go_on_with_what_can_not_be_gone_on_with() -> None:
    (cut,) = (one.text for one in summary(of(live(finished=False))) if "cut off" in one.text)
    assert "--resume" not in cut
    assert "Compare anew" in cut


def test_the_map_has_no_columns_of_ones_and_the_protocol_no_common_baseline() -> None:
    run = of(live())
    (view,) = ratio_chart([run]).views
    assert view.holds["backends"] == ["mine@head", "better@head"]
    assert "baseline" not in dict(protocol_facts(run))
