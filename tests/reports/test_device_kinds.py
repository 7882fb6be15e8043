"""Runs on several kinds of device have one report, and nothing in it combines two kinds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from page_runs import case, failed, run_of, together

from attnbench.reports.html import page as page_module
from attnbench.reports.html.page import page
from attnbench.reports.judged import ReportPart
from attnbench.reports.names import conditions_words
from attnbench.reports.render import render
from attnbench.reports.run import Run
from attnbench.reports.table import View, legend, table
from attnbench.types.record import Shard

H100, A100, EPYC = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "AMD EPYC 9R14, 4 cores"
FACTS: dict[str, dict[str, Any]] = {
    H100: {"cuda_devices": [H100]},
    A100: {"cuda_devices": [A100]},
    EPYC: {"cpu": "AMD EPYC 9R14", "cpu_quota": 4},
}
SHORT, MIDDLE, LONG = (case(length, device="cuda") for length in (128, 256, 512))


def on(kind: str, name: str, times: dict[str, dict[str, float]], *others: Any, **said: Any) -> Run:
    return run_of(times, *others, name=name, facts=FACTS[kind], **said)


FLEET = together(
    on(H100, "first", {SHORT: {"eager": 1.0, "quick": 0.5}, LONG: {"eager": 8.0, "quick": 1.0}}),
    on(
        A100, "second", {SHORT: {"eager": 2.0, "quick": 4.0}}, failed(MIDDLE, "quick", "crashed", "signal 11")
    ),
    on(H100, "third", {MIDDLE: {"eager": 4.0, "quick": 1.0}}),
    on(EPYC, "fourth", {case(128): {"eager": 100.0, "quick": 10.0}}),
    on(A100, "fifth", {LONG: {"eager": 16.0, "quick": 8.0}}),
)


def shown(run: Run, width: int = 120) -> str:
    (parts,) = run.reports
    return table(parts, View(width))


def of_kind(run: Run, kind: str) -> ReportPart:
    (part,) = (part for part in run.parts if part.kind == kind)
    return part


def test_a_kind_on_which_all_backends_of_a_case_failed_has_no_winner() -> None:
    (line,) = (line for line in shown(FLEET).splitlines() if line.startswith("3  L256 cuda"))
    assert line.split(f"{A100} ")[1].split() == ["·"]


def test_json_has_every_record_with_its_device() -> None:
    rows = json.loads(render([ReportPart(FLEET.judged)], "json"))
    wanted = {"first": H100, "second": A100, "third": H100, "fourth": EPYC, "fifth": A100}
    assert len(rows) == len(FLEET.records)
    assert all(wanted[row["run"]] == row["device_kind"] for row in rows)
    assert set(zip(FLEET.frame["run"], FLEET.frame["device_kind"], strict=True)) == {*wanted.items()}


def test_of_a_case_in_several_runs_of_a_kind_the_last_complete_one_counts() -> None:
    times = {SHORT: {"eager": 1.0, "quick": 2.0}}
    again = together(
        FLEET,
        on(H100, "again", times, started="2026-01-03T00:00:00+00:00"),
        on(H100, "lost", {}, failed(SHORT, "quick", "interrupted", ""), started="2026-01-04T00:00:00+00:00"),
    )
    part = of_kind(again, H100)
    assert {one.run for one in part.judged if one.record.case == SHORT} == {"again"}
    assert next(lead for lead in part.answer.leads if lead.best.case == SHORT).best.backend == "eager"
    assert f"{H100}: 4 runs; 2 other measurements of its cases left out" in shown(again)
    assert of_kind(again, A100) == of_kind(FLEET, A100)


def test_a_run_on_both_the_processor_and_a_card_has_two_parts() -> None:
    facts = FACTS[EPYC] | FACTS[H100]
    run = run_of({SHORT: {"eager": 1.0, "quick": 0.5}, case(128): {"eager": 9.0, "quick": 3.0}}, facts=facts)
    assert [(part.kind, len(part.judged)) for part in run.parts] == [(EPYC, 2), (H100, 2)]
    assert f"{EPYC}: 1 run" in shown(run)


def test_runs_of_one_kind_have_a_report_each_and_shards_one() -> None:
    cases = [SHORT, LONG]
    counts = {SHORT: 10.0, LONG: 1.0}
    runs = [
        on(H100, text, {text: {"eager": 2.0, "quick": 1.0}}, counts={text: counts[text]}) for text in cases
    ]
    assert [len(parts) for parts in together(*runs).reports] == [1, 1]
    for number, run in enumerate(runs, start=1):
        (head,) = run.manifests
        runs[number - 1] = Run(
            run.paths, (structs.replace(head, shard=Shard(number, 2, cases)),), run.by_file, times=run.times
        )
    assert [one.answer and one.answer.totals for one in together(*runs[:1]).parts] == [()]
    ((part,),) = together(*runs).reports
    assert {total.backend: round(total.ms) for total in part.answer.totals} == {
        None: 11, "quick": 11, "eager": 22,
    }  # fmt: skip
    assert "2 cases (" in shown(together(*runs))


def test_a_live_comparison_keeps_its_own_report() -> None:
    sides = {"base": {"name": "main"}, "head": {"name": "5e6f7"}}
    live = together(FLEET, on(H100, "live", {SHORT: {"a@base": 1.0, "a@head": 2.0}}, sides=sides))
    assert [len(parts) for parts in live.reports] == [1] * 6


BACKENDS = ("eager", "quick", "third")
TIMES = st.dictionaries(
    st.sampled_from([SHORT, MIDDLE, LONG]),
    st.dictionaries(st.sampled_from(BACKENDS), st.floats(0.1, 100), min_size=1),
    min_size=1,
)
RUNS = st.lists(TIMES, min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(mine=RUNS, theirs=RUNS, others=RUNS)
def test_other_kinds_change_nothing_in_the_part_of_a_kind(mine: Any, theirs: Any, others: Any) -> None:
    ours = [on(H100, f"mine {n}", times) for n, times in enumerate(mine)]
    told = []
    for beside in (theirs, others):
        run = together(*(on(A100, f"theirs {n}", times) for n, times in enumerate(beside)), *ours)
        part = of_kind(run, H100)
        assert {one.device_kind for one in part.judged} == {H100}
        told.append((
            part.answer, part.judged, [row for row in run.summary_rows if row["device_kind"] == H100],
        ))  # fmt: skip
    assert told[0] == told[1]
    own = [record for one in ours for record in one.records]
    assert all(one.record in own for one in told[0][1])


@pytest.fixture
def without_vega(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "vega", lambda: "window.vegaEmbed = null;")


@pytest.mark.usefixtures("without_vega")
def test_the_page_shows_the_devices_and_no_chart_has_two_kinds() -> None:
    text = page(FLEET)
    devices = text.partition("<h2>Devices</h2>")[2].partition("</table>")[0]
    row = r"<tr><td[^>]*>([^<]*)</td><td class=\"n\"[^>]*>(\d+)</td><td class=\"n\"[^>]*>(\d+)</td>"
    assert re.findall(row, devices) == [
        (EPYC, "1", "1"), (A100, "2", "3"), (H100, "2", "3"),
    ]  # fmt: skip
    # Their facts stand once, below.
    assert "2.13.0" not in devices
    assert "2.13.0" in text.partition("<h2>Method and machine</h2>")[2]
    assert 'name="device kind"' in text
    data = json.loads(re.findall(r'id="chart-data">(.*?)</script>', text, re.DOTALL)[0])
    for row in data["rows"]:
        views = [view for name, view in row.items() if name.startswith("in_")]
        assert len({view.partition(": ")[0] for view in views}) <= 1
        assert not views or views[0].partition(": ")[0] in FACTS
    assert any(name.startswith("in_") for row in data["rows"] for name in row)


def of_suite(suite: str, run: Run) -> Run:
    head = structs.replace(run.manifests[0], command=["attnbench", "run", suite])
    return replace(run, manifests=(head,))


def test_suites_on_one_kind_of_device_have_a_sentence_each() -> None:
    model = of_suite("gpt2", on(H100, "first", {SHORT: {"eager": 1.0, "quick": 0.5}}))
    others = of_suite("edges.toml", on(H100, "second", {MIDDLE: {"eager": 1.0, "slow": 4.0}}))
    elsewhere = on(EPYC, "third", {case(128): {"eager": 100.0, "quick": 10.0}})
    both = together(model, others, elsewhere)
    assert "made (L128, float32, 1 thread): use quick: 10.0 ms" in shown(both), (
        "its kind has one suite, the report has several"
    )
    lines = [line for line in shown(both).splitlines() if line.startswith(("gpt2 (", "edges ("))]
    assert [line.split(";")[0] for line in lines] == [
        "gpt2 (L128, float32): use quick: 500 µs",
        "edges (L256, float32): use eager: 1.00 ms",
    ]
    text = page(both)
    assert text.index("gpt2 (L128, float32): use quick") < text.index("Devices")
    assert re.search(r"L128[^/]*</code> <small>gpt2</small>", text)
    assert re.search(r"<option[^>]*>[^<]*L128[^<]* gpt2</option>", text), "charts name it too"
    # Of runs of one suite there is one sentence.
    assert "made (" not in shown(FLEET)


@pytest.mark.usefixtures("without_vega")
def test_a_file_of_a_suites_name_is_another_suite() -> None:
    built_in = of_suite("edges", on(H100, "first", {SHORT: {"eager": 1.0, "quick": 0.5}}))
    own = of_suite("edges.toml", on(H100, "second", {MIDDLE: {"eager": 1.0, "slow": 4.0}}))
    elsewhere = on(EPYC, "third", {case(128): {"eager": 100.0, "quick": 10.0}})
    both = together(built_in, own, elsewhere)
    assert "edges (L128, float32): use quick: 500 µs" in shown(both)
    assert "edges.toml (L256, float32): use eager: 1.00 ms" in shown(both)
    assert re.search(r"L256[^/]*</code> <small>edges\.toml</small>", page(both))


def test_steps_name_their_suite_and_come_after_whole_suites() -> None:
    """torch's function has no sum beside a recurrent layer, but its own cases tell what the step loses:
    (2·2 + 3 + 4) ms over (2·1 + 1 + 4) ms."""
    layer = case(64, rule="mine")
    counts = {case(64): 2.0, case(128): 1.0, layer: 4.0}
    times = {layer: {"eager": 1.0}} | {
        one: {"sdpa_flash": ms, "bmm": 1.0, "eager": 9.0} for one, ms in ((case(64), 2.0), (case(128), 3.0))
    }
    model = on(EPYC, "model", times, counts=counts, stages=dict.fromkeys(counts, "decode"))
    model = of_suite("hybrid", model)
    both = together(model, of_suite("edges", on(H100, "others", {SHORT: {"eager": 1.0, "quick": 0.5}})))
    step = "hybrid (L64–128, float32, 1 thread), decode: "
    (words,) = [line for line in shown(both, 400).splitlines() if line.startswith(step)]
    assert words.endswith(
        "; with torch's function (sdpa_flash) for scaled_dot it takes 11.00 ms, "
        "1.57 [1.56, 1.58] times as long"
    )
    assert re.search(
        r"sdpa_flash for scaled_dot, the rest as above +11\.00 ms +1\.57 +2.0 ms in \d", shown(both, 400)
    )
    top = page(both).partition("<h2>")[0]
    assert 0 < top.index("edges (L128, float32): use quick") < top.index(step)
    head = structs.replace(both.manifests[0], named=["eager", "bmm", "sdpa_flash"])
    few = replace(both, manifests=(head, *both.manifests[1:]))
    assert "hybrid (L64–128, float32, 1 thread), of the 3 backends asked, decode: " in shown(few, 400)


def test_ties_in_one_suite_change_no_choice_in_another() -> None:
    """Beside a run on another machine, runs of one machine have one part: what to use stays as it was."""
    tied = {case(n): {"sdpa_flash": 1.0, "bmm": 1.0, "eager": 2.0} for n in (64, 128)}
    mine = of_suite("mine", on(EPYC, "mine", tied | {case(32): {"sdpa_flash": 0.5, "bmm": 1.0}}))
    clear = {case(n): {"bmm": 0.5, "sdpa_flash": 1.0} for n in (256, 512, 1024, 2048)}
    others = of_suite("others", on(EPYC, "others", clear))
    there = of_suite("others", on(H100, "there", {SHORT: {"eager": 1.0, "theirs": 0.5}}))
    advice = "se torch's function (sdpa_flash) in all 3 cases (sure in 1, tied in 2: "
    assert advice in shown(mine, 400)
    assert advice in shown(together(mine, others, there), 400)


def test_a_disturbed_winner_stands_beside_each_sentence_of_several() -> None:
    times = {case(n): {"eager": 2.0, "bmm": 1.0} for n in (64, 128)}
    counts = dict.fromkeys(times, 1.0)
    model = on(EPYC, "model", times, counts=counts, stages=dict.fromkeys(counts, "decode"))
    lost = {
        case(64): {"pairs": 9, "pairs_left_out": 9},
        case(128): {"notes": ["contended: other programs disturbed more than half of its samples"]},
    }
    records = [
        structs.replace(one, **lost[one.case]) if one.backend == "bmm" else one for one in model.by_file[0]
    ]
    model = of_suite("model", replace(model, by_file=(tuple(records),)))
    there = of_suite("others", on(EPYC, "there", {SHORT: {"eager": 1.0, "theirs": 0.5}}))
    text = page(together(model, there)).partition("<h2>")[0]
    said = "other work disturbed the winners of L64 and L128: their times are less sure; "
    said += "the lead in L64 is proved, that in L128 is less sure too"
    assert f"model, decode: {said}" in text
    alone = replace(model, by_file=(tuple(one for one in records if one.case == case(128)),))
    text = page(together(alone, there)).partition("<h2>")[0]
    assert "its time and its lead are less sure" in text


def test_a_winner_of_disturbed_samples_is_less_sure_everywhere() -> None:
    run = run_of({case(n): {"eager": 2.0, "sdpa_flash": 1.0, "bmm": 1.5} for n in (64, 128, 256)})
    note = "contended: other programs disturbed more than half of its samples"
    records = [
        structs.replace(one, notes=[note]) if (one.case, one.backend) == (case(128), "sdpa_flash") else one
        for one in run.by_file[0]
    ]
    text = " ".join(shown(replace(run, by_file=(tuple(records),)), 400).split())
    assert "nothing is faster, in all 3 cases (sure in 2, less sure in 1: L128); eager takes" in text
    assert ", the next backend 1.50 [1.48, 1.52]. " in text
    fewer = run_of({case(n): {"sdpa_flash": 1.0, "bmm": 1.5} for n in (64, 128)})
    assert "; the next backend takes 1.50 [1.48, 1.52] times as long. " in " ".join(shown(fewer, 400).split())
    tiles = re.findall(r'<td class="h (\w+)"[^>]*>1</td>', page(replace(run, by_file=(tuple(records),))))
    assert tiles == ["best", "likely", "best"]


def test_the_title_counts_kinds_of_device() -> None:
    (title,) = re.findall("<title>(.*?)</title>", page(FLEET))
    assert title == "attnbench: made · 3 kinds of device · 2026-01-02"


def test_a_sentence_says_of_how_many_backends_it_is_where_another_run_asked_others() -> None:
    cases = {case(n): {"eager": 1.0, "quick": 0.5} for n in (64, 128)}
    few = of_suite("lengths", on(EPYC, "few", cases, named=["eager", "quick"]))
    every = of_suite("gpt2", on(EPYC, "every", {case(n): {"eager": 1.0, "flex": 0.5} for n in (256, 512)}))
    there = of_suite("gpt2", on(H100, "there", {SHORT: {"eager": 1.0, "flex": 0.5}}))
    lines = shown(together(few, every, there)).splitlines()
    told = [line.split(";")[0] for line in lines if line.startswith(("lengths (", "gpt2 (L256"))]
    wanted = "of the 2 backends asked, use quick in both cases"
    assert told == [
        f"lengths (L64–128, float32, 1 thread): {wanted}",
        "gpt2 (L256–512, float32, 1 thread): use flex in both cases",
    ]
    # On one kind of device each run has a report; its sentence stands beside the other on the page.
    text = page(together(few, every))
    assert text.count(f"O{wanted[1:]};") == 1
    assert text.count("Use flex in both cases;") == 1
    assert "backends asked, use" not in page(few), "alone nothing contradicts it"


def test_what_a_run_did_not_ask_is_marked_and_named_beside_a_run_that_did() -> None:
    cases = {case(n): {"eager": 1.0, "quick": 0.5} for n in (64, 128)}
    few = of_suite("lengths", on(EPYC, "few", cases, named=["eager", "quick"]))
    more = {case(n): {"eager": 1.0, "flex": 0.5, "sdpa_flash": 2.0} for n in (256, 512)}
    declined = failed(case(512), "quick", "unsupported", "takes no such length")
    every = of_suite("gpt2", on(EPYC, "every", more, declined))
    there = of_suite("gpt2", on(H100, "there", {SHORT: {"eager": 1.0, "theirs": 0.5}}))
    # Of one kind of device they stand in one map: what was not asked looks other than what does not run.
    text = shown(together(few, every, there))
    assert "·: not run   –: not asked" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["flex", "–", "–", "1", "1"] in rows
    assert ["quick", "1", "1", "·", "·"] in rows
    text = page(together(few, every, there))
    assert "·: not run. –: not asked." in text.partition("Maps: ")[2].partition("</p>")[0]
    heat = text.partition("All backends in all cases")[2].partition("</table>")[0]
    assert heat.count('title="flex: not asked">–</td>') == 2
    assert heat.count('title="quick: unsupported: takes no such length">·</td>') == 1
    # So it does among what users have today.
    leads = text.partition('<table class="leads"')[2].partition("</table>")[0]
    assert leads.count('<td class="n">–</td>') == 2
    assert "; –: not asked." in text.partition("Tables: ")[2].partition("</p>")[0]
    # The baseline too, in the table of cases.
    alone = of_suite("lengths", on(EPYC, "few", {case(64): {"quick": 0.5}}, named=["quick"]))
    (row,) = [line for line in shown(together(alone, every, there)).splitlines() if " quick " in line][:1]
    assert row.split()[-1] == "–", row
    # Alone in its report, a run names what another on the same device has a time for.
    assert "2 backends on 2 cases: 4 ok; not asked: flex, sdpa_flash." in page(together(few, every))
    # A run with a named plugin asked all.
    own = of_suite("lengths", on(EPYC, "own", cases, named=["quick"]))
    for text in (page(few), page(together(few, there)), page(together(own, every))):
        assert "not asked:" not in text
        assert ': not asked"' not in text


@pytest.mark.parametrize(
    ("cases", "wanted"),
    [
        ([case(64), case(512)], "L64–512, float32, 1 thread"),
        ([case(64, device="cuda")], "L64, float32"),
        ([case(64).replace("Lq64", "Lq1"), case(64).replace("forward", "both")],
         "Lq1–64 Lk64, float32, forward, both, 1 thread"),
        ([case(64) + "/threads2", case(64).replace("float32", "bfloat16")],
         "L64, float32, bfloat16, 1–2 threads"),
    ],
)  # fmt: skip
def test_conditions_are_a_short_clause(cases: list[str], wanted: str) -> None:
    assert conditions_words(cases) == wanted


def test_lengths_stand_by_stage() -> None:
    decode, step = (case(4096).replace("Lq4096", "Lq1"), case(1, rule="mine"))
    stages = {case(512): "prefill", decode: "decode", step: "decode"}
    # A recurrent layer has one key in a decode, which is not the length of the past.
    assert conditions_words(stages, stages) == "prefill L512, decode Lq1 Lk4096, float32, 1 thread"
    run = run_of({one: {"eager": 1.0} for one in stages}, counts=dict.fromkeys(stages, 1.0), stages=stages)
    top = page(run).partition("<h2>")[0]
    assert 0 < top.index("prefill L512, decode Lq1 Lk4096, float32, 1 thread") < top.index("findings whole")


def test_brackets_are_explained_where_they_stand() -> None:
    run = run_of({case(n): {"eager": n / 32, "bmm": 1.0} for n in (64, 128)}, counts={case(64): 1.0})
    text = page(run)
    range_of = "[a, b]: the interval of the number before it, of 95 % confidence or more; behind a range over"
    assert range_of in text.partition("<h2>")[0]
    (part,) = run.parts
    assert range_of in " ".join(legend(part.judged, {"use"}))
    assert "so it does not follow from them" in text.partition('class="totals"')[0]
