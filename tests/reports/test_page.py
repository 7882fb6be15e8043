"""The page as a document: its findings, its charts, and inert names from files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from page_runs import DOUBTFUL, HOSTILE, TIMES, WHOLE, case, failed, hostile_run, run_of, together
from report_records import ok

from attnbench.api import load
from attnbench.reports.html import page as page_module
from attnbench.reports.html.charts import apart, chart_rows, charts, pareto_front
from attnbench.reports.html.heat import heat_of
from attnbench.reports.html.page import page
from attnbench.reports.html.words import Sentence, findings, use_words
from attnbench.reports.judged import judge
from attnbench.reports.names import shared_words, short_names
from attnbench.reports.run import Run
from attnbench.types.errors import BadInput

RUNS = Path(__file__).parents[1] / "runs"
VOID = {"meta", "link", "input", "wbr", "br"}


class Document(HTMLParser):
    """The elements of a page with their attributes, and the text in each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(autouse=True)
def without_vega(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vega takes seconds to gather, and nothing here runs it."""
    monkeypatch.setattr(page_module, "vega", lambda: "window.vegaEmbed = null;")


def findings_of(run: Run) -> list[Sentence]:
    ((part,),) = run.reports
    return findings(part, run.manifests[0]) + use_words(part)


def rows_of(run: Run) -> list[dict[str, Any]]:
    (judged,) = run.judged_by_file
    return chart_rows(judged)


@pytest.mark.parametrize(("suite", "cases"), [("smoke", 12), ("lengths", 5)])
def test_a_page_of_a_reference_run_is_whole(suite: str, cases: int) -> None:
    run = load(RUNS / f"{suite}.jsonl")
    text = page(run)
    document = Document(text)
    assert document.open == []
    assert suite in document.texts["title"][0]
    assert "AMD EPYC" in document.texts["title"][0]
    (table,) = re.findall(r'<table id="records".*?</table>', text, re.DOTALL)
    assert table.count("<tr") == 1 + len(run.records)
    heads = re.findall(r"<button[^>]*>(.*?)</button>", table)
    assert heads[:5] == ["backend", "time", "×best", "verdict", "case"]
    leads = text.partition("The fastest backend of each case")[2].partition("</table>")[0]
    assert leads.count('scope="row"') == cases
    names = {figure["data-chart"] for figure in document.of("figure")}
    assert names >= {"pareto", "roofline"}
    heat = text.partition("All backends in all cases")[2].partition("</table>")[0]
    assert heat.count('scope="row"') == cases
    # Each case has its fastest backend, or several that may be.
    rows = re.findall(r"<tr><th.*?</tr>", heat, re.DOTALL)[1:]
    assert all("h best" in row or "h likely" in row or row.count("h tied") > 1 for row in rows)
    assert suite != "lengths" or names >= {"time", "memory"}


def test_a_clear_lead_needs_all_others_to_be_shown_slower() -> None:
    (clear,) = (one for one in findings_of(WHOLE) if one.tone == "good")
    assert (clear.subject, clear.text) == (
        "",
        "Use quick in all 3 cases; eager takes 3.00 [2.96, 3.04] times as long.",
    )
    unclear = findings_of(run_of({case(64): {"eager": 1.0, "b": 0.9}}, off=DOUBTFUL))
    assert [one.tone for one in unclear] == ["plain", "unsure"]
    assert ">alone</td>" in page(run_of({case(64): {"eager": 1.0}}))


def test_what_ended_early_or_has_no_outcome_says_so() -> None:
    cut_off = run_of(TIMES, finished=False)
    assert "attnbench run --resume made.jsonl" in page(cut_off)
    going = page(replace(cut_off, going=cut_off.unfinished))
    assert "The run still goes on" in going
    assert "--resume" not in going
    assert "The run has no outcome yet." in page(run_of({}))


def test_a_live_comparison_says_what_became_slower() -> None:
    sides = {"base": {"name": "main"}, "head": {"name": "5e6f7"}}
    slower = failed(
        case(64), "b@head", "ok", "", median_ms=2.0, low_ms=1.9, high_ms=2.1, baseline="b@base", delta=0.02,
        ratio=2.0, ratio_low=1.9, ratio_high=2.1, p_value=0.0005, repetitions=12,
    )  # fmt: skip
    said = findings_of(run_of({}, slower, sides=sides))
    assert "@base is main; @head is 5e6f7" in said[1].text
    assert (said[2].subject, said[2].tone) == ("b@head", "bad")


def test_failures_stand_with_their_reasons_the_wrong_ones_first() -> None:
    text = page(WHOLE).partition("<summary>Failures</summary>")[2].partition("</table>")[0]
    # Reasons that differ in numbers alone are one.
    assert text.count("rms error") == 1
    words = ["wrong</span>", "rms error 3.2e-01", "suspect", "213 ns", "crashed", "signal 11"]
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "runs on cuda only" not in text


def test_hostile_names_and_reasons_are_text() -> None:
    document = Document(page(hostile_run()))
    assert document.open == []
    assert "img" not in {tag for tag, _ in document.elements}
    assert HOSTILE in document.texts["code"]
    assert sum("alert" in script for script in document.texts["script"]) == 1
    assert not any(name.startswith("on") for _, attributes in document.elements for name in attributes)


def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else() -> None:
    text = page(hostile_run())
    document = Document(text)
    (policy,) = (one["content"] or "" for one in document.of("meta") if one.get("http-equiv"))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    scripts = zip(document.texts["script"], document.of("script"), strict=True)
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script, attributes in scripts
        if "type" not in attributes
    }
    assert set(rules["script-src"].split()) == hashes
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)


def test_several_runs_stand_in_one_page_with_views_of_their_own() -> None:
    text = page(together(WHOLE, run_of(TIMES, name="other.jsonl")))
    labels = ["made 2026-01-02 03:04 (1)", "made 2026-01-02 03:04 (2)"]
    assert [f"<h2>{label}</h2>" in text for label in labels] == [True, True]
    times = re.findall(r'<figure[^>]*data-chart="time".*?</figure>', text, re.DOTALL)
    assert [re.findall(r'"view soft">([^:]*:[^:]*):', one)[0] for one in times] == labels
    assert text.count("<h2>Method and machine</h2>") == 1
    assert 'name="run"' in text


def test_charts_show_only_what_was_measured() -> None:
    rows = rows_of(WHOLE)
    assert [chart["name"] for chart in charts(rows)] == ["time", "memory", "pareto", "roofline"]
    assert "sdpa_cudnn" not in {row["backend"] for row in rows}
    one_length = charts(rows_of(run_of({case(64): {"eager": 1.0, "b": 0.5}})))
    assert [chart["name"] for chart in one_length] == ["pareto", "roofline"]
    # Vega-Lite writes a list that names are sorted by into an expression.
    assert '"sort"' not in json.dumps([chart["spec"] for chart in charts(rows)])


def drawn(rows: Sequence[dict[str, Any]], name: str) -> str:
    """The first view of a chart as SVG."""
    vl_convert = pytest.importorskip("vl_convert")
    (chart,) = (one for one in charts(rows) if one["name"] == name)
    shown = [row for row in rows if row.get(f"in_{name}") == chart["views"][0]]
    values = {"rows": shown, "height": 300, "colours": ["red"] * 9, "shapes": ["circle"] * 9}

    def filled(node: Any) -> Any:
        if isinstance(node, list):
            return [filled(one) for one in node]
        if not isinstance(node, dict):
            return node
        if "$" in node:
            field = node["$"]
            return values.get(field) or list(dict.fromkeys(row[field] for row in shown if field in row))
        return {key: filled(one) for key, one in node.items()}

    spec = filled(chart["spec"]) | {"width": 600}
    return str(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="6.1"))


@pytest.mark.parametrize("name", ["time", "memory", "pareto", "roofline"])
def test_vega_lite_draws_every_chart(name: str) -> None:
    marks = re.findall(r"role-mark.*?</g>", drawn(rows_of(WHOLE), name), re.DOTALL)
    assert sum(len(re.findall("<path|<line|<text", group)) for group in marks) >= 5


def test_a_number_that_is_shown_twice_has_one_colour() -> None:
    run = run_of({case(64): {"eager": 1.96, "quick": 1.0}})
    wide = {"ratio_to_best": 1.96, "ratio_to_best_low": 1.1, "ratio_to_best_high": 4.0}
    records = tuple(
        structs.replace(one, **wide, ratio_to_best_p_value=0.001) if one.backend == "eager" else one
        for one in run.records
    )
    text = page(replace(run, by_file=(records,)))
    row = text.partition('<table class="leads"')[2].partition("</table>")[0].partition("<tbody>")[2]
    assert "Shaded</span>: 2 times or more" in text
    assert re.findall(r'class="far">(\w* ?[\d.]+) <', row) == ["2.0", "eager 2.0"]


def test_each_tick_of_a_short_axis_has_its_number() -> None:
    svg = drawn(chart_rows(judge([ok("eager", 9.0, scale=1.0), ok("exact", 7.1, scale=0.84)])), "pareto")
    across, up = (
        re.findall(r"<text[^>]*>([\d.]*)</text>", group)
        for group in re.findall(r"role-axis-label.*?</g>", svg, re.DOTALL)
    )
    assert "0.84" in across
    assert len(up) >= 3
    assert all((*across, *up))


def test_an_inaccurate_backend_has_its_time_and_error_in_charts() -> None:
    coarse = ok("fast", 0.1, scale=9000, status="inaccurate", reason="", arithmetic="bfloat16")
    rows = {row["backend"]: row for row in chart_rows(judge([ok("eager", 0.5), coarse]))}
    assert rows["fast (bfloat16)"]["in_pareto"] == rows["eager"]["in_pareto"]
    assert rows["fast (bfloat16)"]["error"] == 9000
    assert rows["fast (bfloat16)"]["of"] == "fast", "its marks are those of the backend"


def test_the_front_is_what_no_other_beats_in_both() -> None:
    points = [(1.0, 1.0), (2.0, 0.5), (2.0, 1.0), (0.5, 2.0)]
    assert pareto_front(points) == {(1.0, 1.0), (2.0, 0.5), (0.5, 2.0)}


def test_a_run_of_several_ids_is_named_by_what_they_share() -> None:
    cases = {case(n): {"eager": 2.0, "mine": 1.0} for n in (64, 128)}
    wrong = failed(case(256), "mine", "mismatch", "rms error 3.2e-01")
    run = run_of(cases, wrong)
    ids = [*cases, case(256)]
    manifest = structs.replace(run.manifests[0], command=["attnbench", "run", *ids, "--budget", "0.1"])
    records = tuple(
        structs.replace(one, kernel_of="eager") if (one.backend, one.status) == ("mine", "ok") else one
        for one in run.records
    )
    text = page(replace(run, manifests=(manifest,), by_file=(records,)))
    title = "attnbench: 3 cases of attention/scaled_dot · A made machine · 2026-01-02"
    assert text.count(title) == 2
    # A backend that fails elsewhere is marked where it is to be used, and has one column in the map.
    leads, _, heat = text.partition("<summary>The fastest backend")[2].partition(
        "<summary>All backends in all"
    )
    assert leads.count('<small class="fails">wrong in 1 case</small>') == 2
    assert "a → b: a runs the kernel of b" in leads
    heads = re.findall(r'<th scope="col" class="h"><span>(.*?)</span>', heat.partition("</thead>")[0])
    assert heads == ["mine → eager", "eager"]


def test_short_names_leave_out_what_is_ordinary_unless_nothing_is_left() -> None:
    plain, masked = case(64), case(64).replace("/none/", "/causal/")
    assert list(short_names([plain, masked]).values()) == ["none", "causal"]
    cross = masked.replace("Lq64-Lk64", "Lq1-Lk64")
    assert list(short_names([plain, masked, cross]).values()) == ["L64", "L64 causal", "Lq1-Lk64 causal"]
    assert short_names([plain]) == {plain: plain}
    # An id leaves out its one thread, which beside two threads is what differs.
    assert list(short_names([plain, f"{plain}/threads2"]).values()) == ["threads1", "threads2"]
    assert shared_words([plain]) == ""


def test_without_its_packages_a_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(BadInput, match=r"pip install 'attnbench\[html\]'"):
        page(WHOLE)


def test_each_run_has_a_sentence_with_what_to_use_and_one_on_what_fails() -> None:
    slow = run_of({case(64): {"sdpa_flash": 30.0, "eager": 2.0, "bmm": 1.0}}, name="decode.jsonl")
    tied = {"sdpa_flash": 1.0, "eager": 1.0}
    mixed = run_of(
        {case(n): tied | ({"bmm": 0.5} if n > 64 else {}) for n in (64, 128, 256)} | {case(32): tied},
        failed(case(128), "mine", "mismatch", "rms error 3.2e-01"),
        failed(case(512), "mine", "mismatch", "rms error 3.2e-01"),
    )
    text = page(together(slow, mixed))
    top = text.partition("<h2>")[0]
    # It is said once.
    assert text.count("Use bmm in 2 of 4 cases") == 1
    # What to use in one run is not what to use in another, and its tables are one click away.
    assert re.findall(r'<li class="of-run"><a href="#(.*?)">', top) == ["run-1", "run-2"]
    assert re.findall(r'<article id="(.*?)"', text) == ["run-1", "run-2"]
    assert re.search(
        r"\(1\)</a> <small>L64, float32, 1 thread</small></li>"
        r"<li class=\"\w+\">Use bmm: 1\.0+ ms; eager .*, sdpa_flash 30",
        top,
    )
    assert (
        "(2)</a> <small>L32–512, float32, 1 thread</small></li>"
        '<li class="good">Use bmm in 2 of 4 cases, sdpa_flash in 2 (tied in each with eager); ' in top
    )
    assert ", eager 2.00 [1.97, 2.03] in 2; 1 of 5 cases (L512) without a time." in top
    assert '<li class="of-run">all runs</li>' in top
    assert '<li class="bad">mine is wrong in 2 of 5 cases (L128 and L512).' in top
    # Of what ties everywhere none is better than another.
    either = run_of({case(n): tied for n in (64, 128)})
    assert "Use sdpa_flash or eager in both cases (tied in each)." in page(either)


def test_steps_of_models_are_compared_by_stage() -> None:
    counts = {case(64): 2.0, case(128): 10.0}
    stages = {case(64): "prefill", case(128): "decode"}
    run = run_of({one: {"eager": 3.0, "bmm": 1.0} for one in counts}, counts=counts, stages=stages)
    text = page(run)
    assert "Prefill: use bmm, 2.0" in text
    assert "eager takes 3.00 [2.96, 3.04] times as long" in text.partition("Decode: use bmm, 10.0")[2][:200]
    # Of a model the stages come first.
    assert text.index("Prefill: use bmm") < text.index("Use bmm in both cases;")
    # Every backend's total, and the stage of every case, also in the table that the filter reads.
    totals = text.partition("step of decode")[2].partition("</table>")[0]
    assert all(f">{name}</td>" in totals for name in ("eager", "bmm"))
    assert text.count("<small>decode</small>") == 2
    assert text.count("<td>decode</td>") == 2
    # What a program called from start to end is not a step.
    stages = {one: f"{stage} in the program" for one, stage in stages.items()}
    text = page(run_of({one: {"eager": 3.0, "bmm": 1.0} for one in counts}, counts=counts, stages=stages))
    assert "Decode in the program: use bmm, 10.0 ms; eager takes" in re.sub(r"10\.0+ ms", "10.0 ms", text)
    assert "a step" not in text.partition("<h2>")[0]
    assert "step of" not in text


def test_a_total_that_ties_in_every_case_may_be_as_fast() -> None:
    times = {case(64): {"eager": 1.09, "bmm": 1.0}, case(128): {"eager": 1.0, "bmm": 1.05}}
    counts = dict.fromkeys(times, 1.0)
    text = page(run_of(times, counts=counts, off=0.9))
    # It may not be the one with the least time.
    first = "of several the first serves most cases, and need not have the least time"
    assert first in text
    assert first not in page(run_of(times, counts=counts)), "where nothing ties"
    # Nothing is lost where nothing is proved, and no sentence is green.
    assert "loses most in case" not in text
    assert '<li class="good">' not in text
    assert '<li class="good">All counted calls' in page(run_of(times, counts=counts))
    assert " in both cases (tied in each)." in text
    assert "; eager may be as fast (" in text.partition("All counted calls: ")[2].partition("</li>")[0]
    outcomes = text.partition('id="records"')[2]
    # No row but that of the fastest has a bare 1, and here none has. A tie has no number below 1.
    assert outcomes.count(">≈</td>") == 2
    assert len(re.findall(r'>≈ <span class="ends">\[up to [\d.]+\]', outcomes)) == 2


def test_a_disturbed_run_says_so_below_its_answer() -> None:
    times = {case(64): {"eager": 2.0, "bmm": 1.9}}
    note = "contended: more than half of its samples were preempted"
    run = run_of(times, off=DOUBTFUL)
    records = tuple(
        structs.replace(one, notes=["another note", note], p_value=one.p_value and 0.5) for one in run.records
    )
    text = page(replace(run, by_file=(records,)))
    top = text.partition("<h2>")[0]
    disturbed = "2 of 2 measurements were disturbed, 1 of them the fastest of a case: "
    assert top.index('<li class="unsure">Use ') < top.index(f'<li class="unsure">{disturbed}')
    leads = text.partition('<table class="leads"')[2].partition("</table>")[0]
    assert leads.count(">disturbed, ratio too<") == 1
    assert "ratio too: most samples were such" in text
    assert "2 outputs checked, all correct." in top
    assert "unclear, 1 of 1 verdict: " in text.partition("<summary>Unclear verdicts</summary>")[2]
    assert "<span>contended: " in text.partition('id="records"')[2]
    # What is proved all the same stays so: here that users wait longer than for either of two.
    run = run_of({case(64): {"eager": 6.7, "a": 1.0, "b": 1.0}}, counts={case(64): 1.0})
    records = tuple(structs.replace(one, notes=[note]) for one in run.records)
    top = page(replace(run, by_file=(records,))).partition("<h2>")[0]
    step, use, *_ = re.findall(r'<li class="(\w+)">(.*?)</li>', top)
    assert step[0] == use[0] == "good"
    assert re.fullmatch(
        r"All counted calls: use a, .* ms; b may .*; eager takes 6.7.* times as long\.", step[1]
    )
    assert "3 of 3 measurements were disturbed" in top


def test_the_map_has_the_ratio_to_the_fastest_and_failures_in_words() -> None:
    ((part,),) = WHOLE.reports
    heat = heat_of(part, ())
    assert heat is not None
    row = dict(zip(heat.backends, heat.rows[case(128)], strict=True))
    assert [row[name].text for name in ("quick", "eager", "slow", "wrong", "theirs")] == [
        "1",
        "3.00",
        "10",
        "wrong",
        "crash",
    ]
    assert [row[name].tone for name in ("quick", "eager", "slow", "wrong")] == [
        "best",
        "step2",
        "step3",
        "failed",
    ]
    assert "sdpa_cudnn" not in heat.backends
    ((unsure,),) = run_of({case(64): {"eager": 1.0, "b": 0.9}}, off=DOUBTFUL).reports
    assert {cell.text for cells in heat_of(unsure, ()).rows.values() for cell in cells} == {"≈"}  # type: ignore[union-attr]


def test_charts_of_time_leave_out_what_is_far_slower_and_name_it() -> None:
    times = {case(n): {"eager": 1.0, "b": 1.5, "slow": 25.0 if n == 64 else 3.0} for n in (64, 128)}
    rows = rows_of(run_of(times))
    (out,) = (row for row in rows if "out_time" in row)
    assert (out["left_time"], "in_time" in out) == ("slow (25 × at 64)", False)
    shown = [row for row in rows if row.get("in_time")]
    assert max(row["ms"] for row in shown) == 3.0
    ends = {row["backend"]: row["length"] for row in shown if "time_label" in row}
    assert ends == {"eager": 128, "b": 128, "slow": 128}


def test_memory_has_a_chart_where_it_grows_and_what_is_too_little_is_named() -> None:
    # A made run has a MiB for each ms.
    grows = rows_of(
        run_of({case(64): {"eager": 1.0, "c": 0.9, "b": 0.3}, case(128): {"eager": 2.0, "c": 1.9, "b": 0.9}})
    )
    assert {row["backend"] for row in grows if "in_memory" in row} == {"eager", "b", "c"}
    assert [row["left_memory"] for row in grows if "out_memory" in row] == ["b (at 64)"]
    # A line beside a lone point compares nothing.
    lone = rows_of(run_of({case(64): {"eager": 1.0, "b": 0.3}, case(128): {"eager": 2.0, "b": 0.9}}))
    assert not any("in_memory" in row for row in lone)
    # Nor does one beside backends that take too little.
    others = {"eager": 0.4, "b": 0.3}
    little = rows_of(run_of({case(64): {"c": 1.0} | others, case(128): {"c": 2.0} | others}))
    assert not any("in_memory" in row or "out_memory" in row for row in little)
    alone = rows_of(run_of({case(64): {"c": 1.0}, case(128): {"c": 2.0}}))
    assert all("in_memory" in row for row in alone)
    point = rows_of(run_of({case(64): {"eager": 0.4, "b": 0.3}, case(128): {"eager": 2.0, "b": 0.4}}))
    assert not any("in_memory" in row or "out_memory" in row for row in point)
    assert any("in_time" in row for row in point)


def test_marks_of_the_limit_chart_stand_apart() -> None:
    # All cases of a made run have the same operations per byte.
    rows = [row for row in rows_of(WHOLE) if "place" in row]
    middles = sorted({row["middle"] for row in rows})
    assert len(middles) == len({row["case"] for row in rows}) == 3
    by_place = {(row["case"], row["place"], row["gflops"]) for row in rows}
    assert len(by_place) == len(rows)


def test_the_limit_chart_names_the_backend_to_use_and_the_baseline_of_each_case() -> None:
    run = run_of({case(n): {"eager": 3.0, "quick": 1.0, "slow": 2.0, "slower": 4.0} for n in (64, 128)})
    (part,) = run.parts
    assert part.answer is not None
    rows = chart_rows(part.judged, leads=part.answer.leads, chosen=part.answer.chosen)
    assert {row["backend"] for row in rows if "named" in row} == {"eager", "quick"}
    assert {row["backend"] for row in rows if row["best"]} == {"quick"}
    svg = drawn(rows, "roofline")
    legend = re.findall(r"<text[^>]*>([a-z]+)</text>", svg.partition("role-legend-label")[2])
    assert sorted(set(legend)) == ["eager", "quick"]
    # A live comparison has no backend to use: all have their colours.
    assert all("named" in row for row in chart_rows(part.judged))


def test_no_line_joins_a_decode_and_a_prompt() -> None:
    rows = [ok("eager", 1.0, case=case(n)) for n in (1, 2, 512, 1024)]
    stages = {case(n): "decode" if n < 3 else "prefill" for n in (1, 2, 512, 1024)}
    found = chart_rows(judge(rows), stages=stages)
    lengths = {row["in_time"].split()[-1]: [] for row in found}
    for row in found:
        lengths[row["in_time"].split()[-1]].append(row["length"])
    assert lengths == {"decode": [1, 2], "prefill": [512, 1024]}
    assert all("in_time" not in row for row in chart_rows(judge(rows[1:3]), stages=stages))


def test_cases_of_the_limit_chart_are_named_where_there_is_room() -> None:
    rows = [row for row in rows_of(WHOLE) if row.get("case_label")]
    assert sorted(row["case_label"] for row in rows) == sorted({row["name"] for row in rows_of(WHOLE)})
    many = judge([ok("eager", 1.0, case=case(n)) for n in range(100, 130)])
    assert not any(row.get("case_label") for row in chart_rows(many))


def test_the_page_says_what_its_backends_do_and_which_verdicts_are_unclear() -> None:
    run = replace(run_of(TIMES), summaries={"quick": "a quick one", "other": "not in this run"})
    backends = page(run).partition("<summary>Backends</summary>")[2].partition("</table>")[0]
    assert "<code>quick</code></th><td>a quick one" in backends
    assert "not in this run" not in backends


def test_views_and_tooltips_have_the_stage_and_how_sure_a_ratio_is() -> None:
    run = run_of(TIMES, stages=dict.fromkeys(TIMES, "decode"), counts=dict.fromkeys(TIMES, 1.0))
    text = page(run)
    assert re.search(r'"view soft">[^<]*decode</p>', text)
    assert '<option value="L128 decode">' in text
    (data,) = re.findall(r'id="chart-data">(.*?)</script>', text, re.DOTALL)
    over = {row["backend"]: row["over"] for row in json.loads(data)["rows"] if row["case"] == case(128)}
    assert over == {
        "quick": "1", "eager": "3.00 [2.96, 3.04]", "twin": "3.00 [2.96, 3.04]", "slow": "10 [10, 10]"
    }  # fmt: skip


def test_reasons_are_printed_where_a_reader_of_paper_finds_them() -> None:
    printed = re.findall(r'<p class="paper-only">(.*?)</p>', page(WHOLE))
    assert "Not run here, in some cases or in all: sdpa_cudnn (runs on cuda only)." in printed


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.floats(0.01, 1))
def test_labels_keep_their_order_and_distance(places: list[float], least: float) -> None:
    found = apart(sorted(places), least)
    assert all(b - a >= least * 0.999 for a, b in pairwise(found))
    if all(b - a > least for a, b in pairwise(sorted(places))):
        assert found == pytest.approx(sorted(places))


def test_what_could_not_run_stands_below_the_outcomes_of_all_runs() -> None:
    declined = failed(case(64), "other", "unsupported", "no masks yet")
    first = run_of({case(64): {"eager": 1.0}}, declined, name="first.jsonl")
    text = page(together(first, run_of({case(128): {"quick": 1.0}}, name="second.jsonl")))
    rows = text.partition('<table id="records"')[2].partition("</table>")[0]
    names = re.findall(r'<th scope="row" data-k="([^"]*)"', rows)
    assert names == ["eager", "quick", "other"]


def test_facts_that_all_runs_share_stand_once() -> None:
    flags = {"threads": "1", "interop_threads": "2"}
    text = page(together(WHOLE, run_of(TIMES, name="other.jsonl", facts={"torch_flags": flags})))
    machine = text.partition('id="measured"')[2]
    assert "torch flags: interop threads" in machine
    assert "torch flags: threads" not in machine, "each case has its own"
    assert machine.count("A made machine") == 1
    assert "made.jsonl" in machine
    assert "other.jsonl" in machine
