"""What a cell is where it has no time on one of two sides."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.stored.paired import Pair
from attnbench.types.compared import Outcome
from attnbench.types.measured import Cell

_CANT = frozenset({"unsupported", "unavailable"})


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
    return any(cell.status not in _CANT for cell in (*pair.base, *pair.new))


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
