"""What became of each backend on each case from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from attnbench.compare.environment import differences
from attnbench.stats.interval import Interval, printed_interval
from attnbench.types.compared import Cell, Compared, ComparedCell, Measured

Compare = Callable[[Sequence[Measured], Sequence[Measured]], Compared]
"""Two sides to what they say; they are measured alike."""


@dataclass(frozen=True)
class Step:
    """A backend on a case in one run, held against the run before.

    before: the latest run before it that has the cell and was measured alike; None where there is none.
    compared: what the two say; why: why nothing is compared, in words, where there are earlier runs.
    """

    run: Measured
    cell: Cell
    before: Measured | None = None
    compared: ComparedCell | None = None
    why: str = ""

    @property
    def interval(self) -> Interval | None:
        """That of the median time over processes, in ms; None of too few."""
        return printed_interval([ns / 1e6 for ns in self.cell.processes_ns])


def in_order(runs: Sequence[Measured]) -> list[Measured]:
    """Runs from the oldest to the newest; those that don't say when come first."""
    return sorted(runs, key=_moment)


def _moment(run: Measured) -> datetime:
    try:
        when = datetime.fromisoformat(run.started)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def history(
    runs: Sequence[Measured],
    compare: Compare,
    *,
    cases: Sequence[str] = (),
    backends: Sequence[str] = (),
) -> list[Step]:
    """Every cell of these cases and backends (of all, where none are named), run by run.

    Steps of a cell follow each other, the oldest first; cells stand as they first appeared. Each is held
    against the run before it that was measured alike: what was measured on another machine is no step of
    this one.
    """
    found: dict[tuple[str, str], list[tuple[Measured, Cell]]] = {}
    for run in in_order(runs):
        for cell in run.cells:
            if (not cases or cell.case in cases) and (not backends or cell.backend in backends):
                found.setdefault(cell.key, []).append((run, cell))
    pairs = _Pairs(compare)
    return [step for entries in found.values() for step in _steps(entries, pairs)]


class _Pairs:
    """What pairs of runs say, each worked out once for all cells."""

    def __init__(self, compare: Compare) -> None:
        self._compare = compare
        self._alike: dict[tuple[int, int], str] = {}
        self._compared: dict[tuple[int, int], dict[tuple[str, str], ComparedCell]] = {}

    def unlike(self, before: Measured, run: Measured) -> str:
        """In what the two were not measured alike, as far as it matters; "" for nothing."""
        pair = id(before), id(run)
        if pair not in self._alike:
            found = [d for d in differences([before], [run]) if d.matters]
            self._alike[pair] = ", ".join(f"{d.fact} ({d.base}, then {d.new})" for d in found)
        return self._alike[pair]

    def compared(self, before: Measured, run: Measured, cell: Cell) -> ComparedCell | None:
        """What the two say of a cell."""
        pair = id(before), id(run)
        if pair not in self._compared:
            said = self._compare([before], [run])
            self._compared[pair] = {(one.case, one.backend): one for one in said.cells}
        return self._compared[pair].get(cell.key)


def _steps(entries: Sequence[tuple[Measured, Cell]], pairs: _Pairs) -> Iterator[Step]:
    for place, (run, cell) in enumerate(entries):
        earlier = [before for before, _ in reversed(entries[:place])]
        before = next((one for one in earlier if not pairs.unlike(one, run)), None)
        if before is not None:
            yield Step(run, cell, before, pairs.compared(before, run, cell))
        elif earlier:
            yield Step(run, cell, why=f"not measured as before: {pairs.unlike(earlier[0], run)}")
        else:
            yield Step(run, cell)
