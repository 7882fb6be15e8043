"""What a cell is where it has no time on one of two sides."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.stored.units import has_time
from attnbench.types.compared import Outcome
from attnbench.types.measured import Cell

_CANT = frozenset({"unsupported", "unavailable"})


def without_two_times(base: Sequence[Cell], new: Sequence[Cell]) -> tuple[Outcome, str] | None:
    """The verdict on a cell that can't be compared, and why; None where it can.

    base, new: its cells in the runs of a side, none to many. A wrong output on the new side outranks all. A
    time that base has and new doesn't is missing, and so is one of a cell that is ok and yet has none. What
    is new, or has no time on the base side because it failed there, has nothing to be compared with.
    """
    wrong = next((cell for cell in new if cell.status == "mismatch"), None)
    if wrong is not None:
        return "mismatch", wrong.reason or "its output is wrong"
    before, after = any(map(has_time, base)), any(map(has_time, new))
    meanings = sorted({cell.fingerprint for cell in (*base, *new) if cell.fingerprint})
    if before and after:
        if len(meanings) > 1:
            return "missing", f"the case means something else on either side: {' and '.join(meanings)}"
        return None
    for side, cells in (("base", base), ("new", new)):
        empty = next((cell for cell in cells if cell.status == "ok" and not has_time(cell)), None)
        if empty is not None and not any(map(has_time, cells)):
            return "missing", f"ok in {side}, {_flaw(empty)}"
    if before:
        return "missing", _why_not(new, "new")
    if after:
        return "none", "only in new" if not base else f"new: {_why_not(base, 'base')}"
    if not base or not new:
        side, cells = ("new", new) if new else ("base", base)
        return "none", f"only in {side}, without a time: {_why_not(cells, side)}"
    return "none", f"{_why_not(base, 'base')}; {_why_not(new, 'new')}"


def failed_on_both(base: Sequence[Cell], new: Sequence[Cell]) -> bool:
    """Whether a cell has no time on either side, and not because it can't have one."""
    cells = [*base, *new]
    return (
        bool(base and new)
        and not any(map(has_time, cells))
        and not all(c.status in _CANT for c in cells)
    )  # fmt: skip


def _flaw(cell: Cell) -> str:
    if not cell.processes_ns:
        return "and yet without a sample"
    return "and yet with times that can't be any: not a number, infinite, or no more than 0"


def _why_not(cells: Sequence[Cell], side: str) -> str:
    """Why a side has no time of a cell."""
    if not cells:
        return f"not in {side}"
    cell = cells[-1]
    status = cell.status.replace("_", " ")
    return f"{status} in {side}" + (f" ({cell.reason})" if cell.reason else "")
