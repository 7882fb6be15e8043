"""Stored sides are compared within a kind of device, and history has a line for each kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sides import SHORT, beside, cell, side

from attnbench.compare.history import HistoryStep, history
from attnbench.compare.stored import compare_sides
from attnbench.reports.history import render_history
from attnbench.types.compared import Cell, ComparedCell, Measured
from attnbench.types.errors import BadInput

ZEN, XEON = "Zen, 4 cores", "Xeon, 2 cores"
FACTS = {ZEN: {"cpu": "Zen", "cpu_quota": 4}, XEON: {"cpu": "Xeon", "cpu_quota": 2}}


def on(kind: str, *cells: Cell, day: int = 1, **said: Any) -> Measured:
    started = f"2026-01-{day:02}T00:00:00+00:00"
    return side(
        *cells, environment=dict(FACTS[kind]), path=Path(f"{kind}-{day}.jsonl"), started=started, **said
    )


def run(kind: str, factor: float = 1.0, *, day: int = 1) -> Measured:
    return on(kind, cell(middle_ns=1e5 * factor), *beside(), day=day)


def found(base: list[Measured], new: list[Measured]) -> dict[tuple[str, str], ComparedCell]:
    cells = compare_sides(base, new).cells
    return {(one.case, one.device_kind): one for one in cells if one.backend == "mine"}


def test_a_cell_is_compared_with_its_own_kind() -> None:
    cells = found([run(ZEN), run(XEON, 3.0)], [run(XEON, 3.0, day=2), run(ZEN, 1.5, day=2)])
    assert {key: one.verdict for key, one in cells.items()} == {
        (SHORT, ZEN): "slower", (SHORT, XEON): "same",
    }  # fmt: skip
    assert cells[SHORT, ZEN].ratio == pytest.approx(1.5)
    assert cells[SHORT, XEON].ratio == pytest.approx(1.0)


OLD, NEW = "family 23 model 49, caches 32K 512K 16M, AVX2", "family 26 model 2, caches 48K 1M 32M, AVX-512"


def of(details: str, factor: float = 1.0, *, day: int) -> Measured:
    """A run on a machine whose name is that of another generation too; ``details`` tell them apart."""
    told = run(ZEN, factor, day=day)
    return replace(told, environment=told.environment | ({"cpu_details": details} if details else {}))


def test_machines_of_two_generations_with_one_name_are_told_apart() -> None:
    steps = [one for one in history([of(OLD, day=1), of(NEW, 0.5, day=2), of(OLD, day=3)]) if mine(one)]
    old, new = "Zen [family 23 model 49], 4 cores", "Zen [family 26 model 2], 4 cores"
    shown = [(one.device_kind, one.before is not None) for one in steps]
    assert shown == [(old, False), (old, True), (new, False)]
    # Where the family and model are the same, all details are told.
    more = OLD.replace("AVX2", "AVX-512")
    kinds = {one.device_kind for one in history([of(OLD, day=1), of(more, day=2)]) if mine(one)}
    assert kinds == {f"Zen [{OLD}], 4 cores", f"Zen [{more}], 4 cores"}
    with pytest.raises(BadInput, match=r"different conditions.*cpu_details"):
        compare_sides([of(OLD, day=1)], [of(NEW, day=2)])


def test_a_file_without_details_counts_as_of_the_only_machine_with_its_name() -> None:
    steps = [one for one in history([of("", day=1), of(NEW, day=2)]) if mine(one)]
    assert [one.before is not None for one in steps] == [False, True]
    compared = compare_sides([of("", day=1), run(XEON)], [of(NEW, 1.5, day=2), run(XEON, day=2)])
    verdicts = {one.device_kind: one.verdict for one in compared.cells if one.backend == "mine"}
    assert verdicts == {ZEN: "slower", XEON: "same"}
    # Of two it may be either.
    steps = [one for one in history([of("", day=1), of(OLD, day=2), of(NEW, day=3)]) if mine(one)]
    assert [one.before for one in steps] == [None, None, None]
    assert steps[0].device_kind == "Zen, 4 cores, no details recorded"


def mine(step: HistoryStep) -> bool:
    return step.cell.backend == "mine"


def test_what_differs_within_a_kind_is_refused() -> None:
    other = on(ZEN, cell(), day=2)
    other.environment["torch"] = "9"
    base = on(ZEN, cell())
    base.environment["torch"] = "2"
    with pytest.raises(BadInput, match=r"different conditions.*torch \(2 in base, 9 in new\)"):
        compare_sides([base, run(XEON)], [other, run(XEON, day=2)])


def test_sides_without_a_common_kind_are_refused_and_forced_only_without_mixing() -> None:
    with pytest.raises(BadInput, match="different conditions"):
        compare_sides([run(ZEN)], [run(XEON)])
    forced = compare_sides([run(ZEN)], [run(XEON)], force=True)
    assert forced.forced
    assert {one.device_kind for one in forced.cells} == {""}
    third = on(ZEN, *run(ZEN).cells, day=3)
    third.environment["cpu_quota"] = 8
    with pytest.raises(BadInput, match=r"base was measured on several kinds.*Zen, 4 cores; Zen, 8 cores"):
        compare_sides([run(ZEN), third], [run(XEON)], force=True)


FACTORS = st.lists(st.floats(0.1, 10), min_size=1, max_size=3)


@given(base=FACTORS, new=FACTORS, other_base=FACTORS, other_new=FACTORS)
def test_another_kind_changes_no_cell(
    base: list[float], new: list[float], other_base: list[float], other_new: list[float]
) -> None:
    sides = [
        [run(ZEN, factor, day=place) for place, factor in enumerate(factors, start=first)]
        for first, factors in ((1, base), (11, new))
    ]
    others = [[run(XEON, factor, day=21 + place) for place, factor in enumerate(factors)]
              for factors in (other_base, other_new)]  # fmt: skip
    alone = compare_sides(*sides)
    both = compare_sides(*(ours + theirs for ours, theirs in zip(sides, others, strict=True)))
    assert [one for one in both.cells if one.device_kind == ZEN] == list(alone.cells)


def test_history_has_a_line_for_each_kind() -> None:
    runs = [run(ZEN), run(XEON, 3.0, day=2), run(ZEN, 1.5, day=3), run(XEON, 3.0, day=4)]
    steps = history(runs, backends=["mine"])
    assert [(one.device_kind, one.run.started[9], one.why) for one in steps] == [
        (ZEN, "1", ""), (ZEN, "3", ""), (XEON, "2", ""), (XEON, "4", ""),
    ]  # fmt: skip
    ratios = [one.compared.ratio for one in steps if one.compared]
    assert ratios == [pytest.approx(1.5), pytest.approx(1.0)]
    assert "device kind" in render_history(steps, "markdown")
    assert "device kind" not in render_history(history(runs[:1]), "markdown")
