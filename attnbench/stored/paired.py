"""Cells of two sides, brought together by case and backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from attnbench.types.measured import Cell, Measured
from attnbench.types.record import Status

Key = tuple[str, str]


@dataclass
class Pair:
    """A cell on two sides. base, new: as each run of the side has it, none to many; timed_base, timed_new: of
    those the ones with a time."""

    base: list[Cell] = field(default_factory=list)
    new: list[Cell] = field(default_factory=list)
    timed_base: list[Cell] = field(default_factory=list)
    timed_new: list[Cell] = field(default_factory=list)


def paired(base: Sequence[Measured], new: Sequence[Measured]) -> dict[Key, Pair]:
    """Every cell that either side has, in the order of base and then of new."""
    pairs: dict[Key, Pair] = {}
    for runs, is_base in ((base, True), (new, False)):
        for run in runs:
            for cell in run.cells:
                pair = pairs.get(cell.key)
                if pair is None:
                    pair = pairs[cell.key] = Pair()
                (pair.base if is_base else pair.new).append(cell)
                if has_time(cell):
                    (pair.timed_base if is_base else pair.timed_new).append(cell)
    return pairs


def has_time(cell: Cell) -> bool:
    """Whether a cell has times, and each of them can be one: a finite number above 0."""
    times = cell.processes_ns
    # The sum is no number where one of them is none.
    return cell.status == "ok" and bool(times) and sum(times) < inf and min(times) > 0


def status_of(cells: Sequence[Cell]) -> Status | None:
    """Of several runs the last that isn't ok, so that none is hidden; None where no run has the cell."""
    for cell in reversed(cells):
        if cell.status != "ok":
            return cell.status
    return "ok" if cells else None


def median_ms(timed: Sequence[Cell]) -> float | None:
    """The median over all processes; None where there are none."""
    if len(timed) == 1:
        return median(timed[0].processes_ns) / 1e6
    times = [ns for cell in timed for ns in cell.processes_ns]
    return median(times) / 1e6 if times else None
