"""The history of each backend on each case, from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from attnbench.compare.environment import differences
from attnbench.compare.stored import compare_sides
from attnbench.stats.tests import Interval, time_interval
from attnbench.types.compared import Cell, ComparedCell, Measured
from attnbench.types.device import device_kind, shown_kinds, told_kinds


@dataclass(frozen=True)
class HistoryStep:
    """A backend on a case in one run, compared with the run before.

    before: the latest earlier run that has the cell and was measured alike, or None. compared: the comparison
    of the two. why: the reason for no comparison although there are earlier runs. device_kind: of the cell; a
    run that does not state the details of its processor counts as of the only kind that has them.
    """

    run: Measured
    cell: Cell
    before: Measured | None = None
    compared: ComparedCell | None = None
    why: str = ""
    device_kind: str = ""

    @property
    def interval(self) -> Interval | None:
        """The interval of the median time over repetitions, in ms; None for too few."""
        return time_interval([ns / 1e6 for ns in self.cell.processes_ns])


def in_order(runs: Sequence[Measured]) -> list[Measured]:
    """Sort runs from the oldest to the newest; those without a readable start come first."""

    def start(run: Measured) -> datetime:
        try:
            when = datetime.fromisoformat(run.started)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when

    return sorted(runs, key=start)


def history(
    runs: Sequence[Measured],
    *,
    cases: Sequence[str] = (),
    backends: Sequence[str] = (),
) -> list[HistoryStep]:
    """Return every cell of these cases and backends (of all if none are named), run by run.

    The steps of a cell on one kind of device follow each other, the oldest first. Cells come in the order of
    their first appearance. Each step is compared with the latest earlier run that was measured alike, so that
    runs of several machines do not mix.
    """
    ordered = in_order(runs)
    kinds = told_kinds(device_kind(run.environment, cell.case) for run in ordered for cell in run.cells)
    names = shown_kinds(kinds.values())
    found: dict[tuple[str, str], dict[str, list[tuple[int, Cell]]]] = {}
    for place, run in enumerate(ordered):
        for cell in run.cells:
            if (not cases or cell.case in cases) and (not backends or cell.backend in backends):
                kind = names[kinds[device_kind(run.environment, cell.case)]]
                found.setdefault(cell.key, {}).setdefault(kind, []).append((place, cell))

    @cache
    def why_unlike(before: int, after: int) -> str:
        """Return the differences that keep two runs from being compared; "" for none."""
        matter = [d for d in differences([ordered[before]], [ordered[after]]) if d.matters]
        return ", ".join(f"{d.fact} ({d.base}, then {d.new})" for d in matter)

    @cache
    def compared(before: int, after: int) -> dict[tuple[str, str], ComparedCell]:
        cells = compare_sides([ordered[before]], [ordered[after]]).cells
        return {(one.case, one.backend): one for one in cells}

    def step(run: int, cell: Cell, kind: str, earlier: Sequence[int]) -> HistoryStep:
        before = next((one for one in reversed(earlier) if not why_unlike(one, run)), None)
        if before is None:
            why = f"not measured as before: {why_unlike(earlier[-1], run)}" if earlier else ""
            return HistoryStep(ordered[run], cell, why=why, device_kind=kind)
        found = compared(before, run).get(cell.key)
        return HistoryStep(ordered[run], cell, ordered[before], found, device_kind=kind)

    return [
        step(run, cell, kind, [before for before, _ in entries[:count]])
        for by_kind in found.values()
        for kind, entries in by_kind.items()
        for count, (run, cell) in enumerate(entries)
    ]
