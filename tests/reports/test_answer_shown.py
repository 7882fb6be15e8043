"""The answer of a run in a terminal, in Markdown, in JSON and CSV, and as a frame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec import structs
from page_runs import FAILED, TIMES, case, failed, run_of, together

from attnbench.api import load
from attnbench.reports.answer import SUMMARY, cases_grid, lead_text, most_saved_words, times_text
from attnbench.reports.html.page import page
from attnbench.reports.overview import checked_words, gathered_notes
from attnbench.reports.render import render
from attnbench.reports.run import Run
from attnbench.reports.table import View, table
from attnbench.types.record import Accuracy

RUNS = Path(__file__).parents[1] / "runs"
LENGTHS = RUNS / "lengths.jsonl"


@pytest.fixture(scope="module")
def smoke() -> Run:
    return load(RUNS / "smoke.jsonl")


def shown(run: Run, width: int = 100) -> str:
    return table(run.parts, View(width))


def details(run: Run) -> str:
    return " ".join(table(run.parts, View(100, details=True)).split())


def test_one_case_has_its_table() -> None:
    text = shown(run_of({case(64): {"eager": 1.0, "quick": 0.5}}))
    assert "×best" in text
    assert text.splitlines()[0] == f"{case(64)}  on A made machine, torch 2.13.0"
    assert text.splitlines()[1].startswith("use quick: 500 µs; eager takes 2.00 [")


def test_a_busy_machine_is_told_beside_the_sentence_that_it_weakens() -> None:
    for cases in ([64], [64, 128]):
        run = run_of({case(length): {"eager": 1.0, "quick": 0.5} for length in cases})
        busy = tuple(structs.replace(one, pairs=1, pairs_left_out=9) for one in run.records)
        lines = shown(replace(run, by_file=(busy,))).splitlines()
        number, first = 2 * len(cases), 3 if len(cases) > 1 else 2
        assert " ".join(lines[first : first + 2]).startswith(
            f"{number} of {number} measurements were disturbed, {len(cases)} of them the fastest of a case: "
            "use an idle machine, or a longer --budget"
        )


def test_a_sentence_names_ties_the_next_and_the_baseline() -> None:
    times = {"eager": 20.0, "quick": 1.0, "twin": 1.0, "next": 2.0}
    (lead,) = run_of({case(64): times}).answers[0].leads
    parts = lead_text(lead).split("; ")
    assert parts[0] == "use quick or twin: quick 1.00 ms", "as the table says"
    assert re.fullmatch(r"next takes 2.000 \[.*\] times as long, eager 20.0 \[.*\]", parts[1])
    (alone,) = run_of({case(64): {"quick": 1.0}}).answers[0].leads
    assert lead_text(alone) == "use quick: 1.00 ms; no other backend has a time"


def test_notes_that_differ_in_numbers_are_one_line() -> None:
    run = run_of({case(64): {"eager": 1.0, "quick": 0.5}})
    noted = tuple(
        structs.replace(one, notes=[f"its calls wait {share} % of their time"])
        for one, share in zip(run.records, (3, 12), strict=True)
    )
    text = shown(replace(run, by_file=(noted,)))
    assert "note: eager, quick: its calls wait 3 to 12 % of their time" in text


@pytest.mark.parametrize(
    ("name", "median_ms", "told"),
    [
        ("quick", 2.0, True),
        ("quick", 0.52, False),
        # Seen to be quicker than the one to use.
        ("twin", 0.48, True),
        ("twin", 0.505, False),
    ],
)
def test_ratios_that_are_not_those_of_the_times_are_explained(
    name: str, median_ms: float, told: bool
) -> None:
    run = run_of({case(64): {"eager": 1.0, "quick": 0.5, "twin": 0.51}})
    records = tuple(
        structs.replace(one, median_ms=median_ms) if one.backend == name else one for one in run.records
    )
    text = " ".join(shown(replace(run, by_file=(records,))).split())
    assert ("where times and ratios disagree, ratios and verdicts decide" in text) == told


def test_a_time_that_reads_as_less_beside_a_slower_verdict_is_explained() -> None:
    """Also where only rounding makes it so: 0.766 of a wide interval is shown as 0.77."""
    for times in ({"eager": (0.40, 0.39, 0.41), "bmm": (0.391, 0.390, 0.393)},
                  {"eager": (0.766, 0.6, 1.3), "bmm": (0.7681, 0.768, 0.7682)}):  # fmt: skip
        run = run_of({case(64): {"eager": 1.0, "bmm": 1.02}})
        records = tuple(
            structs.replace(one, median_ms=ms, low_ms=low, high_ms=high)
            for one in run.records
            for ms, low, high in [times[one.backend]]
        )
        text = " ".join(shown(replace(run, by_file=(records,))).split())
        assert "ratios and verdicts decide" in text, times


def test_a_single_case_tells_failures_before_its_table() -> None:
    lines = shown(run_of({case(128): {"eager": 1.0, "quick": 0.5}}, FAILED[0])).splitlines()
    assert lines[2].startswith("  wrong: wrong: rms error 3.2e-01")
    assert any(line.startswith("  quick") for line in lines[3:])


def test_an_output_whose_time_is_not_credible_is_correct() -> None:
    ok = structs.replace(FAILED[0], status="ok")
    doubted = structs.replace(FAILED[0], status="suspect")
    told = "2 outputs checked, all correct; of 1 the time is not credible: measure again."
    assert checked_words([ok, doubted]) == told
    told = "2 of 3 outputs correct; of 1 the time is not credible: measure again."
    assert checked_words([ok, doubted, FAILED[0]]) == told


def test_failures_are_told_once_with_their_cases() -> None:
    text = " ".join(shown(run_of(TIMES, *FAILED)).split())
    assert "wrong is wrong in 2 of 3 cases (L128 and L256): rms error 3.2e-01" in text
    assert "theirs crashes in 1 of 3 cases (L128): ended by signal 11" in text
    assert text.index("is wrong in") < text.index("# case")
    assert "not run: sdpa_cudnn" not in text
    assert "disturbed" not in text
    assert "not run: sdpa_cudnn (runs on cuda only)" in details(run_of(TIMES, *FAILED))


def test_a_backend_that_fails_for_several_reasons_is_told_with_the_first() -> None:
    whys = [
        failed(case(n), "odd", "error", f"raised {why}") for n, why in ((128, "KeyError"), (256, "OSError"))
    ]
    text = " ".join(shown(run_of(TIMES, *whys)).split())
    assert "odd ends with an error in 2 of 3 cases (L128 and L256): raised KeyError (in L128; others" in text
    assert "odd ends with an error in 1 of 3 cases (L256): raised OSError" in details(run_of(TIMES, *whys))


def test_the_sentence_counts_outputs_and_wins_and_every_winner_has_a_row() -> None:
    times = {case(64): {"eager": 2.0, "quick": 1.0, "twin": 1.0}, case(128): {"eager": 1.0, "quick": 3.0}}
    times[case(256)] = {"eager": 1.0, "rare": 0.5}
    times |= {case(n): {"eager": 2.0, "quick": 1.0} for n in (512, 1024)}
    head, *sentence, _, key, heads = shown(run_of(times)).partition("\n1  L64")[0].splitlines()
    rows = shown(run_of(times)).partition(heads)[2].splitlines()[1:]
    assert head.startswith("5 cases (attention scaled_dot")
    assert head.endswith("on A made machine, torch 2.13.0")
    assert " ".join(" ".join(sentence).split()) == (
        "11 outputs checked, all correct. Use quick in 3 of 5 cases (sure in 2, tied in 1 with twin), "
        "eager in 1, rare in 1; eager takes 2.00 [1.97, 2.03] times as long in 4 cases."
    )
    assert "×: so many times as long as the fastest" in key
    assert heads.split() == ["#", "case", "use", "time", "eager", "×", "next", "×"]
    assert [row.split() for row in rows[:3]] == [
        ["1", "L64", "quick", "or", "twin", "1.00", "ms", "2.00", "eager", "2.00"],
        ["2", "L128", "eager", "1.00", "ms", "1", "quick", "3.00"],
        ["3", "L256", "rare", "500", "µs", "2.00", "eager", "2.00"],
    ]
    assert ["rare", "·", "·", "1", "·", "·"] in [row.split() for row in rows]
    assert ["twin", "≈", "·", "·", "·", "·"] in [row.split() for row in rows]


def test_the_sentence_has_the_range_of_ratios_and_of_one_its_interval() -> None:
    times = {
        case(64): {"sdpa_flash": 1.5, "quick": 1.0, "eager": 2.0},
        case(128): {"eager": 4.0, "quick": 1.0},
    }
    told = " ".join(shown(run_of(times)).split())
    assert re.search(
        r"Use quick in both cases; torch's function \(sdpa_flash\) takes 1\.50 \[1\.\d+, 1\.\d+\] times as "
        r"long in 1 case, eager 2\.00 to 4\.00 \[1\.97, 4\.06\] in 2\.",
        told,
    )
    times[case(128)]["sdpa_flash"] = 1.2
    told = " ".join(shown(run_of(times)).split())
    # The brackets hold the intervals of both cases.
    wanted = "takes 1.20 to 1.50 [1.18, 1.52] times as long, eager 2.00 to 4.00 [1.97, 4.06]."
    assert f"torch's function (sdpa_flash) {wanted}" in told
    # So do those of cases that read alike, one of which is known to one digit.
    alike = run_of({case(n): {"eager": 3.0, "quick": 1.0} for n in (64, 128)})

    def with_ends(low: float | None, high: float | None, **changes: Any) -> str:
        """The answer where the first case has this interval."""
        said = {"ratio_to_best_low": low, "ratio_to_best_high": high, "ratio_to_best_p_value": 0.0005}
        records = tuple(
            structs.replace(one, **said) if (one.case, one.backend) == (case(64), "eager") else one
            for one in alike.records
        )
        return " ".join(shown(replace(alike, by_file=(records,), **changes)).split())

    assert "eager takes 3.0 [2.0, 4.0] times as long." in with_ends(2.0, 4.0)
    assert "eager takes 3.0? times as long." in with_ends(None, None, times=()), "one case has none"


def test_reasons_that_differ_in_numbers_are_told_once_with_their_range() -> None:
    text = details(load(RUNS / "gpt2.jsonl"))
    assert "weighted values, 3.0 to 6.2 GiB here; it stops at 1 GiB)" in " ".join(text.split())


def test_numbers_in_names_are_no_range() -> None:
    three = (("q8_0", 3, "a"), ("q4_0", 3, "b"), ("q4_0", 4, "c"))
    notes = [(f"takes {kv}, not bfloat16: {size} GiB", name) for kv, size, name in three]
    assert gathered_notes(notes) == [
        ("takes q8_0, not bfloat16: 3 GiB", "a"),
        ("takes q4_0, not bfloat16: 3 to 4 GiB", "b, c"),
    ]


def test_a_failure_is_not_told_with_the_numbers_of_another_backend() -> None:
    leaks = [
        failed(case(64), name, "mismatch", f"memory grows by {mib} MiB with every call")
        for name, mib in (("small", 1), ("large", 64))
    ]
    text = " ".join(shown(run_of(TIMES, *leaks)).split())
    assert "large is wrong in 1 of 4 cases (L64): memory grows by 64 MiB" in text
    assert "small is wrong in" in text


def test_a_tie_names_two_where_there_is_room() -> None:
    alike = {f"backend_{place}": 1.0 for place in range(6)}
    (answer,) = run_of({case(64): {"eager": 1.0} | alike, case(128): {"eager": 1.0}}).answers
    assert re.search("; backend_., backend_. and 4 more may be as fast", lead_text(answer.leads[0]))
    assert re.match(r"use any of 7: eager 1.00 ms; backend_", lead_text(answer.leads[0])), "as the table says"
    parts = run_of({case(64): {"eager": 1.0} | alike, case(128): {"eager": 1.0}}).parts
    assert cases_grid(parts).rows[0][2] == "any of 7"
    two = run_of({case(64): {"eager": 2.0, "a": 1.0, "b": 1.0}, case(128): {"eager": 1.0}}).parts
    assert [cases_grid(two, width).rows[0][2] for width in (200, 80)] == ["a or b", "any of 2"]


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


def test_without_a_baseline_the_fastest_is_the_measure() -> None:
    run = run_of({case(64): {"a": 1.0, "b": 2.0}, case(128): {"a": 1.0, "b": 2.0}})
    records = tuple(structs.replace(record, ratio=None) for record in run.records)
    text = shown(replace(run, by_file=(records,)))
    assert "eager" not in text
    assert ["b", "2.00", "2.00"] in [line.split() for line in text.splitlines()]


def test_a_check_of_several_cases_has_the_errors_of_each() -> None:
    accuracy = Accuracy(1e-7, 1e-6, 2e-7, 1e-6, 3e-7, 5e-6, 256, 256, 4)
    checked = [failed(case(n), "mine", "ok", "", accuracy=accuracy) for n in (64, 128)]
    run = run_of({}, *checked)
    lines = table(run.parts, View(100, details=True)).splitlines()
    assert ["mine", "0.50", "0.50"] in [line.split() for line in lines]
    assert "mean" not in " ".join(lines)
    # Without details it says that all is well.
    assert shown(run).splitlines()[1:3] == ["2 outputs checked, all correct.", ""]
    assert "rms/ref" not in shown(run)


def test_a_check_lists_the_cases_that_failed() -> None:
    right = failed(case(64), "mine", "ok", "")
    lines = [line.split() for line in shown(run_of({}, right, *FAILED[:2])).splitlines()]
    assert lines[1] == ["1", "of", "3", "outputs", "correct."]
    assert [line for line in lines if line[-1:] in (["L64"], ["L128"], ["L256"])] == [
        ["2", "L128"],
        ["3", "L256"],
    ]


def test_the_fastest_is_green_and_what_takes_twice_as_long_is_red() -> None:
    run = run_of({case(n): {"eager": 1.5, "quick": 1.0, "slow": 4.0} for n in (64, 128)}, FAILED[0])
    text = table(run.parts, View(100, colour=True))
    assert "\x1b[1;32m   1\x1b[0m" in text
    assert "\x1b[31m4.00\x1b[0m" in text
    assert "\x1b[31m1.50" not in text
    # A failure too, above the tables and in its cell.
    assert "\x1b[31mwrong is wrong in 1 of 2 cases (L128)" in text
    assert "\x1b[31mwrong\x1b[0m" in text
    assert "\x1b" not in shown(run)


def test_a_narrow_terminal_has_no_next_backends() -> None:
    text = shown(run_of(TIMES), 70)
    assert "eager ×" in text
    assert "next ×" not in text


def test_many_cases_are_divided_into_parts_that_fit() -> None:
    times = {case(n): {"eager": 1.0, "quick": 0.5} for n in range(10, 40)}
    lines = shown(run_of(times), 80).splitlines()
    heads = [line for line in lines if line.startswith("× in case")]
    assert [word for line in heads for word in line.split() if word.isdecimal()] == [
        str(n) for n in range(1, 31)
    ]
    assert max(map(len, lines)) <= 80


def counted(run: Run, counts: dict[str, float]) -> Run:
    (head,) = run.manifests
    return replace(run, manifests=(structs.replace(head, counts=counts),))


def test_a_run_with_counts_ends_with_what_all_calls_of_a_backend_take() -> None:
    run = load(LENGTHS)
    counts = {case: 1000 if "Lq128" in case else 1 for case in run.manifests[0].cases}
    step = counted(run, counts)
    (answer,) = step.answers
    times = {(one.case, one.backend): one.median_ms for one in run.records if one.median_ms is not None}
    for total in answer.totals:
        if total.backend is not None:
            wanted = sum(count * times[case, total.backend] for case, count in counts.items())
            # The median of sums is near the sum of medians, which records have.
            assert total.ms == pytest.approx(wanted, rel=0.05)
            assert total.interval.low <= total.ms <= total.interval.high
    right = {record.backend for record in run.records if record.status == "ok"}
    assert {one.backend for one in answer.totals} == {None, *right}
    text = shown(step, 200)
    sentence, *_ = (line for line in text.splitlines() if line.startswith("all counted calls: "))
    assert re.fullmatch(
        r".*: use torch's function \(sdpa_flash\), \d+ ms; eager takes 1.\d+ \[1.\d+, 1.\d+\] times as long",
        sentence,
    )
    head_line, first, *others = text[text.rindex("all counted calls") :].splitlines()
    assert head_line.split() == ["all", "counted", "calls", "time", "×", "loses", "most", "in", "case"]
    assert first.startswith("sdpa_flash"), "it may be the fastest in each case, so it is the one to use"
    assert first.split()[-1] == "1"
    (slow,) = [line for line in others if line.startswith("sdpa_math")]
    # At L = 128 it takes 0.34 · 0.496 ms longer than eager, a thousand times.
    assert slow.endswith("220 ms in 5, 170 ms in 1, 44 ms in 4")
    assert "| all counted calls | time | × | loses most in case |" in render(step.parts, "markdown")
    assert "| all counted calls | time | interval | × |" in render(step.parts, "markdown", View(details=True))
    # A row alone compares nothing, but details have its interval.
    alone = run_of({case(64): {"bmm": 1.0}}, counts={case(64): 2.0})
    assert "| all counted calls |" not in render(alone.parts, "markdown")
    assert "| all counted calls | time | interval | × |" in render(
        alone.parts, "markdown", View(details=True)
    )
    rows = [row for row in step.summary_rows if row["kind"] == "step"]
    assert [row["median_ms"] for row in rows] == [total.ms for total in answer.totals]


def test_a_backend_that_ties_in_every_case_may_be_as_fast_in_a_step() -> None:
    """Of samples that vary, the fastest of each case is always ahead in the sum; the sentence names one."""
    times = {case(64): {"eager": 1.09, "bmm": 1.0}, case(128): {"eager": 1.0, "bmm": 1.05}}
    run = run_of(times, counts=dict.fromkeys(times, 1.0), off=0.9)
    ((part,),) = run.reports
    assert all(lead.ties for lead in part.answer.leads)
    text = table([part], View(width=100))
    assert re.search(r"all counted calls: use bmm, [\d.]+ ms; eager may be as fast \([\d.]+ ms\)", text)
    _, eager, *_ = text[text.rindex("bmm ") :].splitlines()
    assert eager.endswith(" ≈")


def test_a_step_says_in_which_cases_its_choice_is_tied() -> None:
    times = {
        case(64): {"eager": 1.0, "bmm": 1.0},
        case(128): {"eager": 3.0, "bmm": 1.0},
        case(256): {"eager": 1.0, "bmm": 3.0},
    }
    assert "use eager in 2 cases (tied in 1 with bmm) and bmm in 1, 3.0" in shown(
        run_of(times, counts=dict.fromkeys(times, 1.0))
    )


def test_a_sum_that_ties_names_the_case_in_which_it_is_slower() -> None:
    """Else a reader finds 1.3 [1.2, 1.4] beside a step that may be as fast, and no word why."""
    small, large = case(64), case(128)
    run = run_of(
        {small: {"bmm": 1.0, "eager": 1.3}, large: {"bmm": 10.0, "eager": 10.1}},
        counts={small: 1.0, large: 1.0},
    )
    noise = [(-1) ** i * (0.2 + i / 100) for i in range(12)]
    times = [(small, i, {"bmm": 1e6, "eager": 1.3e6 + i}) for i in range(12)]
    times += [(large, i, {"bmm": 1e7, "eager": 1e7 * (1.01 + one)}) for i, one in enumerate(noise)]
    text = shown(replace(run, times=(tuple(times),)), 200)
    assert re.search(r"; eager is slower in case 1, which is not proved for the sum \(1\d ms", text)
    (row,) = (line for line in text.splitlines() if line.startswith("eager ") and line.endswith(" sum"))
    assert re.search(r" ≈  \d+ µs in 1, not proved for the sum$", row)


def test_the_times_of_a_step_do_not_contradict_its_ratios() -> None:
    def step(ms: Sequence[tuple[float, float | None]]) -> list[list[str]]:
        counts = {case(64): 1.0, case(128): 1.0}
        run = run_of({one: {"bmm": 1.0, "eager": 1.1} for one in counts}, counts=counts)
        times = [
            (one, i, {"bmm": 1e6 * bmm / 2} | ({"eager": 1e6 * eager / 2} if eager else {}))
            for one in counts
            for i, (bmm, eager) in enumerate(ms)
        ]
        lines = shown(replace(run, times=(tuple(times),))).splitlines()
        return [line.split() for line in lines if line.split()[:1] in (["bmm"], ["eager"])][-2:]

    # A busy machine makes both slower, so the interval of the slower one has a digit less.
    drift = [(2.2 * f, 2.33 * f) for f in (*[1.0] * 7, *[1.45] * 5)]
    (fast, slow) = step([(bmm, eager * (1 + i / 1000)) for i, (bmm, eager) in enumerate(drift)])
    assert fast == ["bmm", "2.2", "ms", "1"]
    assert slow[:4] == ["eager", "2.3", "ms", "1.06"]
    # It lacks the repetitions in which the machine was slow.
    (_, slow) = step([(2.2, 2.33 + i / 1000) for i in range(12)] + [(4.4, None)] * 14)
    assert " ".join(slow).endswith("× decides: it is of the same repetitions")


def test_a_step_says_what_decides_also_between_two_slower_backends() -> None:
    counts = {case(64): 1.0, case(128): 1.0}
    run = run_of({one: {"bmm": 1.0, "eager": 1.1, "twin": 1.3} for one in counts}, counts=counts)
    # One lacks the repetitions in which the machine was slow.
    each = [{"bmm": 1.0, "eager": 1.1, "twin": 1.3}] * 12 + [{"bmm": 1.5, "eager": 1.65}] * 14
    times = [
        (one, i, {name: 1e6 * ms * (1 + i / 1e4) for name, ms in those.items()})
        for one in counts
        for i, those in enumerate(each)
    ]
    lines = shown(replace(run, times=(tuple(times),))).splitlines()
    rows = [line for line in lines if line.startswith(("bmm", "eager", "twin"))][-3:]
    assert [row.split()[0] for row in rows] == ["bmm", "eager", "twin"]
    assert ["× decides" in row for row in rows] == [False, False, True]


def test_what_a_named_plugin_brings_is_in_the_first_sentence() -> None:
    times = {"eager": 2.0, "quick": 1.0, "bmm": 1.2, "mine": 3.0}
    for run in (run_of({case(64): times}), run_of({case(64): times, case(128): times})):
        said = r"mine (up to )?3\.0+ \["
        assert not re.search(said, shown(run, 200)), "it is one of many"
        command = ["attnbench", "run", "made", "--plugin", "mine.py"]
        head = structs.replace(run.manifests[0], command=command, named=["mine"])
        assert re.search(said, shown(replace(run, manifests=(head,)), 200))


def test_a_step_agrees_with_its_cases() -> None:
    """A tie may have the least time without being the one to use; one case has the same ratio in its step."""
    times = {
        case(64): {"eager": 1.0, "bmm": 1.04, "quick": 1.4},
        case(128): {"eager": 1.5, "bmm": 1.0, "quick": 1.4},
    }
    run = run_of(times, counts={case(64): 1.0}, off=0.03)
    ((part,),) = run.reports
    (lead,) = (one for one in part.answer.leads if one.best.case == case(64))
    assert (lead.best.backend, part.answer.chosen[case(64)]) == ("eager", "bmm")
    text = table([part], View(width=100))
    assert re.search(r"bmm, 1.0\d* ms; eager may be as fast \(1.0\d* ms, not proved to be less\)", text)
    _, eager, quick, *_ = text[text.rindex("bmm ") :].splitlines()
    assert eager.endswith("≈  not proved to be less")
    assert f" {times_text(lead.over['quick'])} " in quick


def test_a_step_of_several_numbers_of_threads_is_one_step_in_several_ways() -> None:
    """Two threads that wait for each other take longer than one, and the answer says so."""
    times = {case(64): {"eager": 1.4, "bmm": 1.0}, case(64) + "/threads2": {"eager": 14.0, "bmm": 13.0}}
    run = run_of(times, counts=dict.fromkeys(times, 10.0))
    text = shown(run, 200)
    assert "all counted calls with 1 thread: use bmm, 10.00 ms; eager takes 1.4" in text
    assert "all counted calls with 2 threads: use bmm, 130.0 ms; eager takes 1." in text
    compared = (
        r"attention in all counted calls takes 10.00 ms \[.*\] with 1 thread, 130.0 ms \[.*\] with 2: "
        r"call torch.set_num_threads\(1\) if your program has others, and time all of it"
    )
    assert any(re.fullmatch(compared, line) for line in text.splitlines())
    fastest = [row for row in run.summary_rows if row["kind"] == "step" and row["backend"] is None]
    assert [(row["stage"], row["threads"], row["median_ms"]) for row in fastest] == [
        (None, 1, pytest.approx(10.0)), (None, 2, pytest.approx(130.0)),
    ]  # fmt: skip
    near = {case(64): {"eager": 1.0}, case(64) + "/threads2": {"eager": 1.01}}
    unsure = "which is faster is not proved: time your whole program with torch.set_num_threads(1) and with 2"
    assert unsure in " ".join(shown(run_of(near, counts=dict.fromkeys(near, 1.0)), 200).split())
    mixed = {case(64): times[case(64)], case(128) + "/threads2": times[case(64)]}
    assert "all counted calls: use bmm, 20" in shown(run_of(mixed, counts=dict.fromkeys(mixed, 10.0)), 200)


def test_a_choice_saves_no_more_than_attention_of_a_step_takes() -> None:
    times = {case(64): {"eager": 1.4, "bmm": 1.0}, case(128): {"eager": 2.0, "bmm": 3.0}}
    stages = {case(64): "decode", case(128): "prefill"}
    ((part,),) = run_of(times, counts={case(64): 10.0, case(128): 2.0}, stages=stages).reports
    assert part.answer is not None
    said = most_saved_words([part.answer], "eager")
    alone = r"measured alone \(a call takes longer between other work\)"
    most = f"{alone}: that is about the most that a choice could save"
    took = r"attention takes 14\.0* ms \[.*\] of a step of decode, 4\.0* ms \[.*\] of a step of prefill"
    assert re.fullmatch(f"with torch's function, {took}, {most}", said)
    # So it is in a whole program, which has no steps.
    stages = dict.fromkeys(times, "decode in the program")
    ((part,),) = run_of(times, counts=dict.fromkeys(times, 10.0), stages=stages).reports
    took = r"attention takes 34\.0* ms \[.*\] of decode in the program"
    assert re.fullmatch(f"with torch's function, {took}, {most}", most_saved_words([part.answer], "eager"))
    ((uncounted,),) = run_of(times).reports
    assert most_saved_words([uncounted.answer], "eager") == ""


def test_stages_that_want_other_threads_are_told_together() -> None:
    one, two = case(64), case(32)
    times = {one: {"eager": 14.0}, f"{one}/threads2": {"eager": 7.0}}
    times |= {two: {"eager": 0.3}, f"{two}/threads2": {"eager": 0.6}}
    stages = {name: "decode" if name.startswith(two) else "prefill" for name in times}
    text = shown(run_of(times, counts=dict.fromkeys(times, 10.0), stages=stages), 200)
    both = "a program that does both sets its threads before each: 2 for prefill and 1 for decode"
    assert both in text.splitlines()


def test_a_case_without_a_time_is_named_and_left_out_of_the_sum() -> None:
    run = load(LENGTHS)
    cases = run.manifests[0].cases
    records = tuple(
        structs.replace(one, status="unsupported", median_ms=None) if one.case == cases[2] else one
        for one in run.records
    )
    step = counted(replace(run, by_file=(records,)), dict.fromkeys(cases, 2))
    (answer,) = step.answers
    assert answer.totals[0].by_case.keys() == {*cases} - {cases[2]}
    assert "all counted calls without case 3: " in shown(step)
    # Nor does it hide what no case says: all of it in the sentence, the first in the table.
    head = structs.replace(step.manifests[0], without=["10 convolution layers", "2 encoder layers"])
    named = replace(step, manifests=(head,))
    text = shown(named, 200)
    assert "all counted calls without case 3, 10 convolution layers and 2 encoder layers: " in text
    assert "\nall counted calls without case 3 and 2 more " in text
    assert {row["without"] for row in named.summary_rows if row["kind"] == "step"} == {
        "10 convolution layers; 2 encoder layers"
    }


@pytest.mark.parametrize(
    ("words", "caches", "told"),
    [
        ("H4-Lq1-Lk512-D64/none/float32/cpu/forward", "caches 48K 1M", True),
        ("H4-Lq1-Lk512-D64/none/float32/cpu/forward", "caches 48K 512K", False),
        ("H4-Lq1-Lk512-D64/none/float32/cpu/forward/rotating", "caches 48K 1M", False),
        ("H4-Lq2-Lk512-D64/none/float32/cpu/forward", "caches 48K 1M", False),
    ],
)
def test_a_decode_that_found_its_keys_in_the_caches_says_so(words: str, caches: str, told: bool) -> None:
    # 4 heads of 512 keys and values with 64 float32 each: exactly 1 MiB.
    other = case(64)
    text = f"attention/scaled_dot/B1-{words}"
    run = run_of({one: {"eager": 2.0, "bmm": 1.0} for one in (text, other)}, facts={"cpu_details": caches})
    assert ("decode had its keys and values in the caches" in shown(run)) == told
    assert ("--cache rotating" in run._repr_html_()) == told
    # Beside another run it stands with what to use in its own.
    beside = run_of({other: {"eager": 1.0}}, facts={"cpu_details": caches})
    top = page(together(beside, run)).partition("<h2>")[0]
    assert top.rindex("#run-2") < top.find("Decode had its keys") < top.index("all runs") or not told


@pytest.mark.parametrize(
    ("extra", "pinned", "counted", "told"),
    [
        (2**21, True, True, True),
        (2**19, True, True, False),
        (2**21, False, True, False),
        (2**21, True, False, False),
    ],
)
def test_a_step_whose_time_rests_on_memory_that_workers_keep_says_so(
    extra: int, pinned: bool, counted: bool, told: bool
) -> None:
    one = case(64)
    run = run_of({one: {"sdpa_flash": 2.0, "bmm": 1.0}}, counts={one: 3.0} if counted else {})
    (head,), (records,) = run.manifests, run.by_file
    run = replace(
        run,
        manifests=(structs.replace(head, protocol=head.protocol | {"allocator_pinned": pinned}),),
        by_file=(tuple(structs.replace(x, peak_extra_bytes=extra * (x.backend == "bmm")) for x in records),),
    )
    assert ("workers keep it, a program gives it back" in " ".join(shown(run).split())) == told
    assert ("--allocator default" in run._repr_html_()) == told


@pytest.mark.parametrize(("off", "told"), [(0.3, False), (0.35, True)])
def test_times_whose_intervals_span_a_factor_of_two_are_disturbed(off: float, told: bool) -> None:
    run = run_of({case(64): {"eager": 2.0, "bmm": 1.0}}, off=off)
    assert ("2 of 2 measurements were disturbed" in " ".join(shown(run).split())) == told


@pytest.mark.parametrize(("left_out", "told"), [(3, False), (4, True)])
def test_times_that_lost_more_than_a_quarter_of_their_pairs_are_disturbed(left_out: int, told: bool) -> None:
    run = run_of({case(64): {"eager": 2.0, "bmm": 1.0}})
    (records,) = run.by_file
    run = replace(
        run, by_file=(tuple(structs.replace(one, pairs=9, pairs_left_out=left_out) for one in records),)
    )
    assert ("2 of 2 measurements were disturbed" in " ".join(shown(run).split())) == told


def test_what_a_choice_of_backends_left_out_is_counted() -> None:
    times = {case(n): {"eager": 2.0, "bmm": 1.0} for n in (64, 128)}
    assert "asked" not in shown(run_of(times))
    run = run_of(times, named=["eager", "bmm"], not_asked=["flex", "chunked"])
    assert "2 of 4 backends asked; more:" in shown(run)
    assert "not asked, because others were named: flex, chunked" in details(run)
