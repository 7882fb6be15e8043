"""The answer of a run in a terminal, in Markdown, in JSON and CSV, and as a frame."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from msgspec import structs
from page_runs import DOUBTFUL, FAILED, TIMES, case, failed, run_of

from attnbench.api import load
from attnbench.reports.answer import SUMMARY, busy_text, case_list, cases_grid, lead_text
from attnbench.reports.judged import Part
from attnbench.reports.run import Run
from attnbench.reports.table import View, table
from attnbench.types.record import Accuracy

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def smoke() -> Run:
    return load(RESULTS / "reference-smoke.jsonl")


def shown(run: Run, width: int = 100, **view: bool) -> str:
    return table(run.parts, View(width, **view))


@pytest.mark.parametrize(("width", "lines"), [(100, 45), (80, 60)])
def test_smoke_is_seen_at_a_glance(smoke: Run, width: int, lines: int) -> None:
    text = shown(smoke, width)
    assert len(text.splitlines()) <= lines
    assert max(map(len, text.splitlines())) <= width
    assert text.count("not run:") == 1
    assert text.count("runs on cuda only") == 1


def test_every_case_of_a_run_has_its_winner_and_every_backend_its_place() -> None:
    lines = shown(run_of(TIMES)).splitlines()
    assert lines[0] == "3 cases, all attention scaled_dot B1-H4-D64 none float32 cpu forward: 12 ok"
    at = lines.index("#  case  fastest     time  next, × as long")
    assert lines[at + 1].split() == ["1", "L128", "quick", "546", "µs", "eager", "3.00", "[2.96,", "3.04]"]
    (quick,) = (line.split() for line in lines if line.startswith("quick"))
    assert quick == ["quick", "0.333", "±1%", "3", "*0.33", "*0.33", "*0.33"]
    (eager,) = (line.split() for line in lines if line.startswith("eager"))
    assert eager == ["eager", "1", "0", "1", "1", "1"]
    (head,) = (place for place, line in enumerate(lines) if line.startswith("backend"))
    order = [line.split()[0] for line in lines[head + 1 : head + 5]]
    assert (order[0], order[3]) == ("quick", "slow"), "the least mean first"


def test_one_case_and_details_have_the_table_of_each_case(smoke: Run) -> None:
    one = run_of({case(64): {"eager": 1.0, "quick": 0.5}})
    text = shown(one)
    assert "×best" in text
    assert "fastest: quick, 500 µs; eager takes 2.00 [" in text
    details = shown(smoke, details=True)
    assert details.count("  backend ") == 12
    assert details.endswith(shown(smoke).rpartition("more: ")[0] + "more: --legend\n")


def test_failures_are_told_once_with_the_numbers_of_their_cases() -> None:
    text = " ".join(shown(run_of(TIMES, *FAILED)).split())
    assert "mismatch: wrong in cases 1, 2: rms error 3.2e-01" in text
    assert "crashed: theirs in case 1: ended by signal 11" in text
    assert "not run: sdpa_cudnn (runs on cuda only)" in text


def test_a_failure_is_not_told_with_the_numbers_of_another_backend() -> None:
    leaks = [
        failed(case(64), name, "mismatch", f"memory grows by {mib} MiB with every call")
        for name, mib in (("small", 1), ("large", 64))
    ]
    text = " ".join(shown(run_of(TIMES, *leaks)).split())
    assert re.search(r"large in case \d: memory grows by 64 MiB", text)
    assert "small in case" in text


def test_reasons_that_differ_in_the_rule_alone_are_told_once() -> None:
    declined = [
        failed(case(64, rule=rule), "flex", "unsupported", f"needs a dot product; {rule} has none")
        for rule in ("additive", "concat_linear")
    ]
    text = " ".join(shown(run_of({case(64): {"eager": 1.0, "flex": 2.0}}, *declined)).split())
    assert text.count("needs a dot product") == 1
    assert "flex (needs a dot product; this rule has none)" in text


def test_missing_backends_are_told_with_the_numbers_of_their_cases() -> None:
    lengths = (16, 32, 48, 64, 80)
    times = {case(n): {"eager": 1.0} | ({"flex": 2.0} if n in (16, 64) else {}) for n in lengths}
    declined = [failed(case(n), "flex", "unsupported", "no odd lengths") for n in (32, 48, 80)]
    assert "not in cases 2, 3, 5: flex (no odd lengths)" in shown(run_of(times, *declined)).splitlines()


def test_numbers_of_cases_are_written_in_short() -> None:
    assert case_list([12, 3, 1, 2, 10, 11]) == "1-3, 10-12"
    assert case_list([1, 2, 4]) == "1, 2, 4"
    assert case_list([]) == ""


def test_the_marks_tell_the_lead_and_the_doubt_about_the_baseline() -> None:
    sure, unsure = {"eager": 1.0, "quick": 0.1, "slow": 30.0}, {"eager": 1.0, "quick": 0.99, "slow": 30.0}
    run = run_of({case(64): sure, case(128): unsure}, off=DOUBTFUL)
    lines = shown(run).splitlines()
    (quick,) = (line.split() for line in lines if line.startswith("quick"))
    (eager,) = (line.split() for line in lines if line.startswith("eager"))
    (slow,) = (line.split() for line in lines if line.startswith("slow"))
    assert quick[-2:] == ["*0.10", "~0.99"], "the fastest for sure; perhaps the fastest, perhaps as eager"
    assert eager[-2:] == ["1", "=1"]
    assert slow[-2:] == ["30", "30"], "shown to differ"
    assert (quick[-3], eager[-3], slow[-3]) == ("1+1", "0+1", "0")


def test_a_tie_names_as_many_as_there_is_room_for() -> None:
    alike = {f"backend_{place}": 1.0 for place in range(6)}
    (answer,) = run_of({case(64): {"eager": 1.0} | alike, case(128): {"eager": 1.0}}).answers
    assert ", or backend_" in lead_text(answer.leads[0])
    parts = [Part(run_of({case(64): alike, case(128): alike}).judged, answer)]
    texts = {width: cases_grid(parts, width).rows[0][-1] for width in (200, 55, 45)}
    assert [text.count(",") for text in texts.values()] == [2, 1, 0]
    assert [text.split("+")[1] for text in texts.values()] == ["3 more", "4 more", "5 more"]


def test_a_busy_machine_is_told_in_one_line(smoke: Run) -> None:
    (answer,) = smoke.answers
    line = (
        f"{answer.disturbed} of 91 measurements were disturbed: use an idle machine, or --budget 1 (seconds)"
    )
    assert busy_text(answer) == line
    assert " ".join(shown(smoke).split()).count(line) == 1
    assert "disturbed" not in shown(run_of(TIMES))


def test_a_live_comparison_has_no_answer() -> None:
    sides = {"base": {"name": "main"}, "head": {"name": "5e6f7"}}
    run = run_of(TIMES, sides=sides)
    assert run.answers == [None]
    assert run.summary.empty


def test_the_frame_has_the_rows_of_the_summary(smoke: Run) -> None:
    frame = smoke.summary
    assert list(frame.columns) == list(SUMMARY)
    assert list(frame["backend"]) == [row["backend"] for row in smoke.summary_rows]
    means = frame[frame["kind"] == "backend"].set_index("backend")
    assert means.loc["bmm", "ratio_low"] < means.loc["bmm", "ratio"] < means.loc["bmm", "ratio_high"]
    assert pd.isna(means.loc["flex", "ratio"])


def test_several_runs_keep_their_own_answers(smoke: Run) -> None:
    both = load([RESULTS / "reference-smoke.jsonl", RESULTS / "reference-gpt2.jsonl"])
    assert both.answers[0] == smoke.answers[0]
    assert list(both.summary["run"].unique()) == [manifest.run_id for manifest in both.manifests]


def test_without_a_baseline_times_stand_in_the_matrix() -> None:
    run = run_of({case(64): {"a": 1.0, "b": 2.0}, case(128): {"a": 1.0, "b": 2.0}})
    records = tuple(structs.replace(record, ratio=None) for record in run.records)
    lines = shown(replace(run, by_file=(records,))).splitlines()
    assert lines[-5].split() == ["b", "0", "2.00", "ms", "2.00", "ms"]
    assert lines[-4].startswith("*: fastest")
    assert lines[-2] == "no ratios: the baseline eager has no time; run it too"


def test_a_check_of_several_cases_has_the_errors_of_each() -> None:
    accuracy = Accuracy(1e-7, 1e-6, 2e-7, 1e-6, 3e-7, 5e-6, 256, 256, 4)
    checked = [failed(case(n), "mine", "ok", "", accuracy=accuracy) for n in (64, 128)]
    lines = shown(run_of({}, *checked)).splitlines()
    assert ["mine", "0.50", "0.50"] in [line.split() for line in lines]
    assert "mean" not in " ".join(lines)


def test_many_cases_are_divided_into_parts_that_fit() -> None:
    times = {case(n): {"eager": 1.0, "quick": 0.5} for n in range(10, 40)}
    lines = shown(run_of(times), 80).splitlines()
    heads = [line for line in lines if line.startswith("backend")]
    assert [word for line in heads for word in line.split() if word.isdecimal()] == [
        str(n) for n in range(1, 31)
    ]
    assert max(map(len, lines)) <= 80
