"""The history of cells: which run is held against which, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_runs import CASES, GOLDEN, measured, ok, run_of

from attnbench.compare.history import history, in_order
from attnbench.compare.stored import compare_sides
from attnbench.results.read import read_side
from attnbench.types.compared import Cell, Compared, ComparedCell, Measured
from attnbench.types.errors import BadFile


def day(number: int) -> str:
    return f"2026-01-{number:02}T00:00:00+00:00"


class Told:
    """Stands for the comparison: remembers what it was asked, and calls everything slower."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, base: Sequence[Measured], new: Sequence[Measured]) -> Compared:
        (before,), (after,) = base, new
        self.asked.append((before.started, after.started))
        cells = [
            ComparedCell(cell.case, cell.rule, cell.backend, "slower", ratio=1.5) for cell in after.cells
        ]
        return Compared("base", "new", tuple(cells))


def test_each_step_is_held_against_the_one_before() -> None:
    told = Told()
    runs = [run_of(ok("eager", 1.0), ok("bmm", 2.0), started=day(n)) for n in (3, 1, 2)]
    steps = history(runs, told)
    assert [(s.cell.backend, s.run.started, s.before and s.before.started) for s in steps] == [
        ("eager", day(1), None), ("eager", day(2), day(1)), ("eager", day(3), day(2)),
        ("bmm", day(1), None), ("bmm", day(2), day(1)), ("bmm", day(3), day(2)),
    ]  # fmt: skip
    assert [s.compared and s.compared.verdict for s in steps] == [None, "slower", "slower"] * 2
    # Each pair of runs once, whatever they hold.
    assert told.asked == [(day(1), day(2)), (day(2), day(3))]


def test_a_run_without_the_cell_is_no_step_of_it() -> None:
    runs = [
        run_of(ok("eager", 1.0), started=day(1)),
        run_of(ok("bmm", 1.0), started=day(2)),
        run_of(ok("eager", 1.0), started=day(3)),
    ]
    steps = history(runs, Told(), backends=["eager"])
    assert [(s.run.started, s.before and s.before.started) for s in steps] == [
        (day(1), None), (day(3), day(1)),
    ]  # fmt: skip


def test_runs_of_several_machines_are_held_against_those_of_their_own() -> None:
    zen, xeon = {"cpu": "Zen"}, {"cpu": "Xeon"}
    runs = [
        run_of(ok("eager", 1.0), started=day(n), environment=environment)
        for n, environment in enumerate([zen, xeon, zen, xeon], start=1)
    ]
    steps = history(runs, Told())
    assert [s.before and s.before.started for s in steps] == [None, None, day(1), day(2)]
    assert [s.why for s in steps] == ["", "not measured as before: cpu (Zen, then Xeon)", "", ""]


def test_cases_and_backends_are_chosen() -> None:
    run = run_of(ok("eager", 1.0), ok("eager", 1.0, case=CASES[1]), ok("bmm", 1.0, case=CASES[1]))
    chosen = history([run], Told(), cases=[CASES[1]], backends=["bmm", "none"])
    assert [s.cell.key for s in chosen] == [(CASES[1], "bmm")]
    assert len(history([run], Told())) == 3


def test_dates_are_ordered_as_moments_whatever_their_zone() -> None:
    dates = ["2026-01-01T01:00:00+00:00", "2026-01-01T03:00:00+02:30", "2026-01-01T00:45:00", "soon"]
    ordered = [run.started for run in in_order([run_of(started=date) for date in dates])]
    assert ordered == ["soon", dates[1], dates[2], dates[0]]


@settings(max_examples=40)
@given(runs=st.lists(measured(), max_size=4))
def test_no_cell_of_any_run_is_lost_whatever_they_are(runs: list[Measured]) -> None:
    steps = history(runs, compare_sides)
    found = sorted((s.run.started, *s.cell.key) for s in steps)
    assert found == sorted((run.started, *cell.key) for run in runs for cell in run.cells)
    for step in steps:
        if step.before is not None:
            assert step.before.started <= step.run.started
            assert step.compared is not None
            assert (step.compared.case, step.compared.backend) == step.cell.key


def test_with_the_comparison_of_stored_runs() -> None:
    slow = [1.0 + n / 100 for n in range(9)]
    runs = [
        run_of(ok("eager", *slow), started=day(1)),
        run_of(ok("eager", *(3 * ms for ms in slow)), started=day(2)),
        run_of(Cell(CASES[0], "dot", "eager", "mismatch", reason="rms error"), started=day(3)),
    ]
    _, slower, wrong = history(runs, compare_sides)
    assert slower.compared is not None
    assert slower.compared.verdict == "slower"
    assert slower.compared.ratio == pytest.approx(3.0)
    assert wrong.compared is not None
    assert wrong.compared.verdict == "mismatch"


def test_files_of_pytest_benchmark_have_a_history_too() -> None:
    steps = history(read_side([GOLDEN]), compare_sides, cases=["test_tiny.py::test_sum"])
    assert [step.run.version for step in steps] == ["4.0.0"] * 3 + ["5.3.1"] * 3
    assert {step.compared.verdict for step in steps if step.compared} == {"unclear"}


def test_a_run_that_is_read_twice_counts_once_and_the_fuller_copy_does(tmp_path: Path) -> None:
    from attnbench.results.read import _each_once

    part = run_of(ok("eager", 1.0), path=Path("part.jsonl"), run_id="r")
    whole = replace(part, cells=(*part.cells, ok("bmm", 1.0)), path=Path("whole.jsonl"))
    other = replace(part, run_id="s")
    nameless = replace(part, run_id="")
    note = "part.jsonl: the run r stands in whole.jsonl too, and counts once"
    for runs in ([[part, other], [whole]], [[whole], [other, part]]):
        assert _each_once(runs) == [replace(whole, problems=(note,)), other]
    assert _each_once([[nameless], [nameless]]) == [nameless, nameless]
    with pytest.raises(BadFile, match="holds no run"):
        read_side([tmp_path])
