"""The history of cells: the order of runs, and the run that each is compared with."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_sides import CASES, measured, ok, side

from attnbench.compare.history import HistoryStep, history, in_order
from attnbench.types.compared import Cell, Measured


def day(number: int) -> str:
    return f"2026-01-{number:02}T00:00:00+00:00"


def days(steps: list[HistoryStep]) -> list[tuple[str, int, int | None]]:
    """Backend, day, and the day that each step is compared with."""
    return [
        (s.cell.backend, int(s.run.started[8:10]), s.before and int(s.before.started[8:10])) for s in steps
    ]


def test_each_step_is_compared_with_the_one_before() -> None:
    runs = [side(ok("eager", 1.0), ok("bmm", 2.0), started=day(n)) for n in (3, 1, 2)]
    assert days(history(runs)) == [
        ("eager", 1, None), ("eager", 2, 1), ("eager", 3, 2), ("bmm", 1, None), ("bmm", 2, 1), ("bmm", 3, 2),
    ]  # fmt: skip


def test_a_run_without_the_cell_is_skipped() -> None:
    runs = [side(ok(name, 1.0), started=day(n)) for n, name in enumerate(("eager", "bmm", "eager"), start=1)]
    assert days(history(runs, backends=["eager"])) == [("eager", 1, None), ("eager", 3, 1)]


def test_a_step_that_was_measured_otherwise_says_how() -> None:
    runs = [
        side(ok("eager", 1.0), started=day(n), environment={"cpu": "Zen", "torch": torch})
        for n, torch in enumerate(("2.9", "2.10", "2.9"), start=1)
    ]
    steps = history(runs)
    assert [before for _, _, before in days(steps)] == [None, None, 1]
    assert [s.why for s in steps] == ["", "not measured as before: torch (2.9, then 2.10)", ""]


def test_dates_are_ordered_in_time_whatever_their_zone() -> None:
    dates = ["2026-01-01T01:00:00+00:00", "2026-01-01T03:00:00+02:30", "2026-01-01T00:45:00", "soon"]
    ordered = [run.started for run in in_order([side(started=date) for date in dates])]
    assert ordered == ["soon", dates[1], dates[2], dates[0]]


@settings(max_examples=20)
@given(runs=st.lists(measured(), max_size=4))
def test_no_cell_of_any_run_is_lost(runs: list[Measured]) -> None:
    steps = history(runs)
    found = sorted((s.run.started, *s.cell.key) for s in steps)
    assert found == sorted((run.started, *cell.key) for run in runs for cell in run.cells)
    for step in steps:
        if step.before is not None:
            assert step.before.started <= step.run.started
            assert (step.compared.case, step.compared.backend) == step.cell.key


def test_steps_have_the_verdicts_of_compare() -> None:
    slow = [1.0 + n / 100 for n in range(9)]
    runs = [
        side(ok("eager", *slow), started=day(1)),
        side(ok("eager", *(3 * ms for ms in slow)), started=day(2)),
        side(Cell(CASES[0], "dot", "eager", "mismatch", reason="rms error"), started=day(3)),
    ]
    verdicts = [(s.compared.verdict, s.compared.ratio) for s in history(runs) if s.compared]
    assert verdicts == [("slower", pytest.approx(3.0)), ("mismatch", None)]
