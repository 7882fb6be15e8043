"""Cells of two sides brought together by case and backend, and those without two times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from attnbench.types.compared import Cell, Measured, Outcome
from attnbench.types.status import MEANING, Status, status_words

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


def without_two_times(pair: Pair) -> tuple[Outcome, str] | None:
    """The verdict on a cell that can't be compared, and why; None where it can.

    A wrong output on the new side outranks all. A time that base has and new doesn't is missing, and so is
    one of a cell that is ok and yet has none. What is new, or has no time on the base side because it failed
    there, has nothing to be compared with.
    """
    base, new = pair.base, pair.new
    wrong = next((cell for cell in new if cell.status == "mismatch"), None)
    if wrong is not None:
        return "mismatch", wrong.reason or "its output is wrong"
    if pair.timed_base and pair.timed_new:
        meanings = {cell.fingerprint for cell in (*base, *new)} - {""}
        if len(meanings) > 1:
            return "missing", f"the case has another meaning on either side: {' and '.join(sorted(meanings))}"
        return None
    for side, cells, timed in (("base", base, pair.timed_base), ("new", new, pair.timed_new)):
        empty = next((cell for cell in cells if cell.status == "ok"), None)
        if empty is not None and not timed:
            return "missing", f"ok in {side}, {_flaw(empty)}"
    if pair.timed_base:
        return "missing", _why_not(new, "new")
    if pair.timed_new:
        return "none", "only in new" if not base else _why_not(base, "base")
    if not base or not new:
        side, cells = ("new", new) if new else ("base", base)
        return "none", f"only in {side}, without a time: {_why_not(cells, side)}"
    if (base[-1].status, base[-1].reason) == (new[-1].status, new[-1].reason):
        return "none", _why_not(new, "both")
    return "none", f"{_why_not(base, 'base')}; {_why_not(new, 'new')}"


def failed_on_both(pair: Pair) -> bool:
    """Whether a cell has no time on either side, and not because it can't have one."""
    if not pair.base or not pair.new or pair.timed_base or pair.timed_new:
        return False
    return any(not MEANING[cell.status].declined for cell in (*pair.base, *pair.new))


def _flaw(cell: Cell) -> str:
    if not cell.processes_ns:
        return "and yet without a sample"
    return "and yet with times that can't be any: not a number, infinite, or no more than 0"


def _why_not(cells: Sequence[Cell], side: str) -> str:
    """Why a side has no time of a cell."""
    if not cells:
        return f"not in {side}"
    cell = cells[-1]
    status = status_words(cell.status)
    return f"{status} in {side}" + (f" ({cell.reason})" if cell.reason else "")
