"""Comparisons in every format."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from attnbench.compare.gate import CellRule, Gate, hold
from attnbench.reports.compared import (
    COLUMNS,
    MOST_CELLS,
    MOST_FOLDED,
    least_words,
    markdown,
    render_compared,
    worst_words,
)
from attnbench.reports.table import View
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell, Difference, Outcome
from attnbench.types.words import FORMATS, Format

SHORT = "attention/dot/B1-H4-Lq64-Lk64-D32/none/float32/cpu/forward"
LONG = "attention/scaled_dot/B1-H4-Lq128-Lk128-D64/causal/float32/cpu/forward"
COMMENT = 65_536
"""Characters that a comment on GitHub may have."""


def cell(backend: str, verdict: Outcome, ratio: float | None = None, **more: Any) -> ComparedCell:
    said: dict[str, Any] = {
        "case": SHORT, "rule": "dot", "backend": backend, "verdict": verdict, "base_status": "ok",
        "new_status": "ok",
    }  # fmt: skip
    if ratio is not None:
        said |= {
            "base_ms": 0.2, "new_ms": 0.2 * ratio, "ratio": ratio, "low": ratio * 0.99, "high": ratio * 1.012,
            "confidence": 0.996, "p_value": 4.1e-5, "p_adjusted": 3e-4, "resolution": 0.043,
        }  # fmt: skip
    return ComparedCell(**(said | more))


UNCLEAR = (
    "less than 43 % can't be detected: processes of base differ by 19 %, those of new by 12 %, and the "
    "machine's reference calls moved by 5.6 %"
)
WHOLE = Compared(
    base="results/base.jsonl",
    new="results/new.jsonl",
    cells=(
        cell("eager", "same", 1.002),
        cell("sdpa_flash", "slower", 1.154),
        cell("compiled", "faster", 0.871),
        cell("bmm", "unclear", 1.07, reason=UNCLEAR, resolution=0.43, low=0.9, high=1.31, p_value=None),
        cell("flex", "missing", new_status="crashed", reason="crashed in new (ended by signal 11 | at once)"),
        cell("numpy", "mismatch", new_status="mismatch", reason="largest error 3 <b>times</b> the limit"),
        cell("sdpa_cudnn", "none", reason="unavailable in both (runs on cuda only)"),
        cell("sdpa_efficient", "none", reason="unavailable in both (runs on cuda only)"),
        cell("eager", "same", 0.998, case=LONG, rule="scaled_dot"),
        cell("sdpa_flash", "unclear", 2.4, case=LONG, rule="scaled_dot", low=None, high=None, p_value=None),
    ),
    differences=(
        Difference("cpu", "AMD EPYC 7B13", "AMD EPYC 9B14", matters=True),
        Difference("torch", "2.12.0", "2.13.0", matters=True),
        Difference("system", "Linux 6.1", "Linux 6.2", matters=False),
    ),
    forced=True,
    warnings=(f"1 cell only in base: flex on {SHORT}",),
    conventions=("ratio: time in new over time in base, below 1 is faster", "verdict: as it is"),
)
GATE = Gate(rules=(CellRule(backend="numpy", ignore="known since 1.2"),))


def rendered(compared: Compared, format_: Format, **said: Any) -> str:
    return render_compared(compared, hold(compared, GATE), format_, View(**said))


@pytest.mark.parametrize("format_", FORMATS)
def test_all_of_it(format_: Format, snapshot: SnapshotAssertion) -> None:
    assert rendered(WHOLE, format_) == snapshot


def test_nothing_at_all(snapshot: SnapshotAssertion) -> None:
    empty = Compared("no runs", "no runs", ())
    assert {format_: rendered(empty, format_) for format_ in FORMATS} == snapshot


def test_json_has_every_column_and_no_nan() -> None:
    odd = replace(WHOLE, cells=(cell("eager", "unclear", 1.0, low=float("nan"), high=float("inf")),))
    data = json.loads(rendered(odd, "json"), parse_constant=lambda word: pytest.fail(word))
    assert tuple(data["cells"][0]) == COLUMNS
    assert (data["cells"][0]["low"], data["cells"][0]["high"]) == (None, None)
    assert [one["fact"] for one in data["differences"]] == ["cpu", "torch", "system"]


def test_what_is_behind_options(snapshot: SnapshotAssertion) -> None:
    assert rendered(WHOLE, "table", details=True, legend=True) == snapshot


def test_a_wrong_output_comes_with_the_command_that_looks_for_its_cause() -> None:
    whole = Compared("base", "new", (cell("numpy", "mismatch"), cell("eager", "same", 1.0)))
    gate = hold(whole, Gate(), plugins=("my_kernel",))
    command = f"attnbench check {SHORT} --backend numpy --plugin my_kernel\n"
    assert command in render_compared(whole, gate, "table", View(120, colour=False))
    assert f"```sh\n{command}```" in markdown(whole, gate)
    # A reason and advice of usual lengths are not cut; beside advice the place of the errors is a detail.
    errors = "RMS error 0.5 is above 1e-06"
    reason = f"{errors}; worst at {'x' * 350}"
    told = replace(
        whole, cells=(cell("numpy", "mismatch", reason=reason),), advice=("advice for numpy: " * 40,)
    )
    for format_ in ("table", "markdown"):
        text = render_compared(told, hold(told, Gate()), format_, View(1000, colour=False))
        assert ("advice for numpy: " * 40).rstrip() in text
        assert errors in text
        assert reason not in text
        assert reason in rendered(replace(told, advice=()), format_, width=1000)
    assert reason in rendered(told, "table", width=1000, details=True)
    # A benchmark of others has a name that is no case.
    foreign = Compared("base", "new", (cell("", "mismatch", case="tests/a.py::b", rule=""),))
    assert "attnbench check" not in markdown(foreign, hold(foreign, Gate()))


def test_a_resolution_is_a_share_or_a_factor() -> None:
    shares = (0.043, 0.0996, 1.0, 1.34, 469.0)
    assert [least_words(share) for share in shares] == ["4.3 %", "10 %", "100 %", "130 %", "a factor of 470"]


def test_the_sentence_counts_each_cell_once() -> None:
    said = markdown(WHOLE, hold(WHOLE, Gate())).splitlines()[2]
    assert (
        "gate fails: 1 slower, 1 mismatch, 1 missing of 10 cells; 2 unclear (differences of up to 150 % may "
        "hide, most in sdpa_flash), 2 same, 1 faster, 2 not compared; worst: sdpa_flash on " in said
    )


def test_unclear_cells_have_the_reason_and_the_advice_once() -> None:
    why = "repetitions disagree by more than --delta (2 %): give a larger --budget, for more and longer ones"
    lows = {"a": 0.9, "b": 0.8, "c": 0.9}
    cells = [cell(name, "unclear", 1.0, reason=why, resolution=None, low=low) for name, low in lows.items()]
    live = Compared("base", "head", tuple(cells))
    for format_ in ("table", "markdown"):
        text = " ".join(rendered(live, format_, width=120).split())
        assert text.count("--budget") == 1
        # It is the end of the widest interval of the table, and says whose.
        hidden = "differences of up to 20 % may hide, most in b"
        sentence = f"gate holds, but nothing was decided: 3 unclear ({hidden})"
        assert sentence in text
    assert rendered(live, "table", width=300, details=True).count("--budget") == 3
    alone = replace(live, cells=tuple(replace(one, backend="a") for one in cells))
    assert "(differences of up to 20 % may hide)" in " ".join(rendered(alone, "table", width=120).split())


def test_the_worst_is_a_loss_and_nothing_else_however_large() -> None:
    quick = Compared("a", "b", (cell("x", "unclear", 2.0), cell("y", "faster", 0.5)))
    assert worst_words(quick, {}) == ""


def test_of_many_cells_only_those_that_changed_are_shown_the_worst_first() -> None:
    same = [cell(f"backend_{i}", "same", 1.0) for i in range(20)]
    changed = (cell("better", "faster", 0.7), cell("bad", "slower", 1.2), cell("worse", "slower", 1.5))
    unclear = cell("perhaps", "unclear", 1.3, p_value=None, resolution=0.4)
    many = Compared("a", "b", (*same, *changed, unclear))
    lines = render_compared(many, hold(many, Gate()), "table", View()).splitlines()
    rows = [line for line in lines if line.startswith("  ") and line.endswith(("slower", "faster"))]
    backends = [line.split()[0] for line in rows]
    assert backends == ["worse", "bad", "better"]
    assert not any("backend_" in line or "perhaps" in line for line in lines)
    assert any(line.startswith("unclear, 1: attnbench compare --ref measures two commits") for line in lines)
    assert any("1 unclear (differences of up to 32 % may hide)" in line for line in lines)
    strict = Gate(fail_on=("unclear",))
    assert "perhaps" in render_compared(many, hold(many, strict), "table", View())


@pytest.mark.parametrize("verdict", OUTCOMES)
def test_markdown_fits_into_a_comment_however_many_cells_there_are(verdict: Outcome) -> None:
    cells = tuple(
        cell(f"backend_{i}", verdict, 1.5, case=f"attention/{'x' * 120}/{i}", reason="why " * 200)
        for i in range(3000)
    )
    many = replace(WHOLE, cells=cells, warnings=tuple("w" * 600 for _ in range(500)))
    text = markdown(many, hold(many, Gate()))
    assert len(text) < COMMENT
    if verdict == "none":
        assert "- 3,000 cells of backend_0, backend_1" in text
    else:
        assert f"{3000 - (15 if verdict != 'same' else 0) - MOST_FOLDED} more: --format json" in text


def test_of_very_many_cells_the_table_shows_the_worst() -> None:
    same = [cell(f"backend_{i}", "same", 1.0) for i in range(MOST_CELLS)]
    text = rendered(replace(WHOLE, cells=(*same, cell("bad", "slower", 2.0))), "table")
    assert "bad " in text
    assert "backend_" not in text
    details = rendered(replace(WHOLE, cells=(*same, cell("bad", "slower", 2.0))), "table", details=True)
    assert "1 more cells: --format json" in details


@pytest.mark.parametrize(
    ("base_ms", "new_ms", "ratio", "told"),
    [(4.0, 4.1, 1.08, True), (4.0, 4.32, 1.08, False), (3.96, 4.28, 1.08, False), (4.3, 4.1, 1.05, True)],
)
def test_a_ratio_that_is_not_that_of_the_times_is_explained(
    base_ms: float, new_ms: float, ratio: float, told: bool
) -> None:
    one = cell("eager", "slower", ratio, base_ms=base_ms, new_ms=new_ms, low=ratio - 0.03, high=ratio + 0.04)
    compared = Compared("base", "new", (one, cell("bmm", "slower", 1.3)))
    table, line, rest = markdown(compared, hold(compared, Gate())).partition(
        "\nwhere times and ratio disagree, the ratio decides: it is of the same repetitions\n"
    )
    assert bool(line) == told
    assert not told or (table.endswith("|\n") and rest.startswith("\n"))
