"""The charts as data: what they show of a run, and that Vega-Lite takes them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace as replaced
from typing import Any

import pytest
from msgspec.structs import replace as struct_replace
from page_runs import HOSTILE, LENGTHS, LEVEL, TIMES, WHOLE, around, case, failed, large_run, run_of

from attnbench.reports.html.chart import COLOURS, Chart, View
from attnbench.reports.html.families import families, growth, student_quantile
from attnbench.reports.html.page import charts
from attnbench.reports.html.pareto import on_the_front
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.shown import shown


def filled(node: Any, view: View) -> Any:
    """As the page's script fills it."""
    if isinstance(node, list):
        return [filled(one, view) for one in node]
    if not isinstance(node, dict):
        return node
    if "$view" in node:
        return list(view.values) if node["$view"] == "values" else view.holds[node["$view"]]
    return {key: filled(one, view) for key, one in node.items()}


def chart_of(name: str, *runs: Any) -> Chart:
    (one,) = (chart for chart in charts(shown(runs or [WHOLE])) if chart.name == name)
    return one


@pytest.mark.parametrize("name", ["ratios", "time", "memory", "roofline", "pareto"])
def test_vega_lite_draws_every_chart_with_marks(name: str) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    chart = chart_of(name)
    spec = filled(chart.spec, chart.views[0]) | {"width": 600}
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="6.1")
    drawn = re.findall(r"role-mark.*?</g>", svg, re.DOTALL)
    assert sum(group.count("<path") + group.count("<line") + group.count("<text") for group in drawn) >= 8


def test_specifications_hold_no_data_and_no_name_of_a_file() -> None:
    run = run_of({case(length): {"eager": around(1, 1), HOSTILE: around(2, 2)} for length in LENGTHS})
    for chart in charts(shown([run])):
        assert chart.views
        assert "alert" not in json.dumps(chart.spec)
        assert "eager" not in json.dumps(chart.spec)
        # Vega-Lite writes an order that is given as a list into an expression, name by name.
        assert '"sort"' not in json.dumps(chart.spec)


def test_an_exponent_is_that_of_the_power_and_its_interval_holds_it() -> None:
    exact = growth([(length, 3e-4 * length**2) for length in (64, 128, 256, 512)])
    assert exact is not None
    assert exact.exponent == pytest.approx(2)
    assert exact.text.startswith("2.00")
    bent = growth([(64, 1.0), (128, 2.4), (256, 7.0), (512, 26.0)])
    assert bent is not None
    assert bent.low is not None
    assert bent.high is not None
    assert bent.low < bent.exponent < bent.high
    assert bent.over == "64 to 512 (4)"


def test_an_exponent_and_its_interval_are_those_of_scipy() -> None:
    from scipy.stats import linregress, t

    points = [(128, 0.11), (256, 0.31), (512, 1.4), (1024, 5.2), (1024, 5.9)]
    found = growth(points)
    line = linregress([math.log(length) for length, _ in points], [math.log(ms) for _, ms in points])
    far = t.ppf(0.975, 3) * line.stderr
    assert found is not None
    assert (found.exponent, found.low, found.high) == pytest.approx(
        (line.slope, line.slope - far, line.slope + far)
    )


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 101])
def test_quantiles_of_student_are_those_of_scipy(freedom: int) -> None:
    from scipy.stats import t

    assert student_quantile(0.975, freedom) == pytest.approx(t.ppf(0.975, freedom))


def test_two_lengths_have_no_interval_and_one_has_no_exponent() -> None:
    two = growth([(64, 1.0), (128, 4.0)])
    assert two is not None
    assert two.text == "2.0?"
    assert growth([(64, 1.0), (64, 2.0)]) is None
    assert growth([]) is None


def test_families_differ_in_length_alone_and_decoding_is_one_of_its_own() -> None:
    decode = [case(128).replace("Lq128-Lk128", f"Lq1-Lk{keys}") for keys in (64, 128)]
    run = run_of(TIMES, *(failed(text, "eager", "ok", "", median_ms=1.0) for text in decode))
    found = families(run.records)
    labels = [family.label.split("/")[2] for family in found]
    assert labels == ["B1-H4-Lq*-Lk*-D64", "B1-H4-Lq1-Lk*-D64"]
    assert found[0].lengths == list(LENGTHS)
    assert found[1].lengths == [64, 128]


def test_times_against_length_have_their_intervals_and_exponents() -> None:
    view = chart_of("time").views[0]
    assert len(view.values) == 4 * len(LENGTHS)
    assert all(row["low"] <= row["amount"] <= row["high"] for row in view.values)
    slopes = {row["backend"]: row["exponent"] for row in view.tables[0].rows or ()}
    assert slopes["eager"].startswith("2.00")
    assert view.tables[0].open
    assert "At 512 quick has the least" in view.about


def test_ratios_have_a_cell_for_each_outcome_that_says_something() -> None:
    (view,) = chart_of("ratios").views
    by_cell = {(row["case"], row["backend"]): row for row in view.values}
    first = case(128)
    short = shortened(first, common_part([record.case for record in WHOLE.records]))
    assert by_cell[first, "quick"]["line"] == short
    assert short in view.holds["cases"]
    assert by_cell[first, "quick"]["said"] == "faster"
    assert by_cell[first, "vague"]["text"].endswith("?")
    assert not by_cell[first, "vague"]["sure"]
    assert by_cell[first, "wrong"]["text"] == "wrong"
    assert by_cell[first, "odd"]["value"] is None
    assert "numpy" not in view.holds["backends"]


def test_backends_of_the_map_stand_in_the_order_of_the_run() -> None:
    """In the file those that were refused come first."""
    run = run_of(TIMES, failed(case(128), "first", "crashed", "signal 11"))
    reordered = replaced(run, records=(run.records[-1], *run.records[:-1]))
    (view,) = chart_of("ratios", reordered).views
    assert view.holds["backends"] == [*run.manifest.backends[:-1], "first"]


def test_a_long_name_of_a_case_has_two_lines_and_the_map_room_for_them() -> None:
    run = run_of(TIMES | {case(64, rule="dot"): LEVEL})
    (view,) = chart_of("ratios", run).views
    assert view.holds["cases"][0] == "scaled_dot Lq128-Lk128"
    whole = run_of({case(128): TIMES[case(128)], case(64, rule="dot", dtype="bfloat16"): LEVEL})
    (view,) = chart_of("ratios", whole).views
    assert view.holds["cases"] == ["scaled_dot\nLq128-Lk128 float32", "dot Lq64-Lk64 bfloat16"]
    assert view.holds["width"] > 46 * len(view.holds["backends"])
    # Of one case nothing is left out, and its id was cut at its dtype.
    (view,) = chart_of("ratios", run_of({case(64): LEVEL})).views
    assert view.holds["cases"] == ["attention/scaled_dot/B1-H4-Lq64-Lk64-D64/\nnone/float32/cpu/forward"]
    assert view.label == case(64)


def test_what_is_never_drawn_uses_up_no_colour() -> None:
    refused = [failed(case(128), f"b{i}", "unavailable", "runs on cuda only") for i in range(10)]
    run = run_of(TIMES, *refused)
    run = replaced(run, records=(*run.records[-10:], *run.records[:-10]))
    view = chart_of("time", run).views[0]
    assert view.holds["colours"] == list(COLOURS[:4])


def test_where_all_need_as_much_nobody_has_the_least() -> None:
    assert chart_of("memory").views[0].about.endswith("At 512 all 4 have 8 MiB, as measured.")


def test_memory_that_was_measured_and_is_too_little_to_tell_is_not_called_unmeasured() -> None:
    run = run_of(TIMES)
    little = tuple(struct_replace(record, peak_extra_bytes=1024) for record in run.records)
    chart = chart_of("memory", replaced(run, records=little))
    assert chart.views == ()
    assert "take 512 KiB or more" in chart.nothing


def test_one_of_a_thing_is_told_as_one() -> None:
    run = run_of({case(64): {"eager": around(1, 1)}})
    assert chart_of("ratios", run).views[0].about == "Ratios of 1 backend on 1 case."
    assert chart_of("roofline", run).views[0].about.startswith("1 outcome on 1 case beside")


def test_many_cases_are_shown_in_parts() -> None:
    views = chart_of("ratios", large_run(cases=70)).views
    assert [view.label for view in views] == ["1 to 30 of 70", "31 to 60 of 70", "61 to 70 of 70"]
    assert [len(view.holds["cases"]) for view in views] == [30, 30, 10]


def test_without_a_baseline_or_lengths_a_chart_says_why_there_is_none() -> None:
    run = run_of({case(64): {"quick": around(1.0, 1)}})
    empty = {chart.name: chart for chart in charts(shown([run])) if not chart.views}
    assert set(empty) == {"ratios", "time", "memory", "pareto"}
    assert all(chart.nothing.endswith(".") for chart in empty.values())


def test_no_point_lies_above_the_limit_that_its_run_measured() -> None:
    (view,) = chart_of("roofline").views
    points = [row for row in view.values if row["kind"] == "point"]
    limits = {row["case"]: row["gflops"] for row in view.values if row["kind"] == "limit"}
    assert len(points) == sum(record.status == "ok" for record in WHOLE.records)
    assert set(limits) == {row["case"] for row in points}
    roof = sorted((r["intensity"], r["gflops"]) for r in view.values if r.get("which") == "highest")
    assert roof == sorted(roof, key=lambda corner: corner[1])
    assert max(limits.values()) <= roof[-1][1] * 1.0001


def test_the_front_is_what_no_other_beats_in_both() -> None:
    points = [(1.0, 1.0), (2.0, 0.5), (2.0, 1.0), (0.5, 2.0), (1.0, 1.0)]
    assert on_the_front(points) == [True, True, False, True, True]
    views = chart_of("pareto").views
    front = {row["backend"] for row in views[0].values if row["front"] == "yes"}
    assert {"quick", "twin"} <= front
    assert "slow" not in front


def test_errors_that_are_told_alike_put_nobody_on_the_front() -> None:
    times = {"eager": around(2, 1), "quick": around(1, 2)}
    run = run_of({case(64): times}, budgets={"eager": 1.0, "quick": 1.004})
    (view,) = chart_of("pareto", run).views
    assert {row["backend"]: row["front"] for row in view.values} == {"quick": "yes", "eager": "no"}


def test_runs_of_several_machines_are_views_of_their_own() -> None:
    for chart in charts(shown([WHOLE, run_of(TIMES, name="other.jsonl")])):
        assert "attention/" not in chart.views[0].label
        assert {view.label.split(":")[0] for view in chart.views} == {"run 1", "run 2"}
        lines = [row for view in chart.views for row in view.values]
        assert lines


def test_what_ids_have_in_common_is_left_out_and_one_id_stays_whole() -> None:
    ids = [case(64), case(128), case(64, dtype="bfloat16")]
    common = common_part(ids)
    assert [shortened(one, common) for one in ids] == [
        "Lq64-Lk64 float32", "Lq128-Lk128 float32", "Lq64-Lk64 bfloat16",
    ]  # fmt: skip
    assert shortened(case(64), common_part([case(64)])) == case(64)
