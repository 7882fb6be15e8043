"""Two sides of stored runs, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp
from statistics import median

from attnbench.compare.verdict import benjamini_hochberg
from attnbench.stored.drift import Drift, moved_beside, reference_drift
from attnbench.stored.environment import check_alike, differences, untold
from attnbench.stored.judging import judged
from attnbench.stored.numbers import Numbers, numbers_of, with_drift
from attnbench.stored.presence import without_two_times
from attnbench.stored.units import Unit, has_time, units_of
from attnbench.stored.warned import warnings_of
from attnbench.types.compared import Compared, ComparedCell
from attnbench.types.measured import Cell, Measured
from attnbench.types.record import Status

Key = tuple[str, str]
Sides = dict[Key, tuple[list[Cell], list[Cell]]]


def compare_sides(
    base: Sequence[Measured],
    new: Sequence[Measured],
    *,
    delta_of: Callable[[str, str], float] = lambda _case, _backend: 0.02,
    force: bool = False,
) -> Compared:
    """What two lists of stored runs say of every cell that either has.

    Within one run a side the process is the unit, of several runs the run is. delta_of: by case and backend
    the least effect that counts, as a fraction.

    Raises:
        BadInput: the sides differ in what times depend on, and ``force`` isn't said.
    """
    unlike = differences(base, new)
    if not force:
        check_alike(unlike)
    sides = _sides(base, new)
    numbers = _adjusted(_with_drifts(sides, _numbers(sides, delta_of)))
    family = sum(found.p_value is not None for found in numbers.values())
    cells = tuple(
        _compared(key, sides[key], numbers.get(key), family, delta_of(*key)) for key in sides
    )  # fmt: skip
    forced = any(difference.matters for difference in unlike)
    return Compared(
        base=_name(base),
        new=_name(new),
        cells=cells,
        differences=unlike,
        forced=forced,
        warnings=(*warnings_of(base, new, sides, numbers), *untold(unlike)),
    )


def _sides(base: Sequence[Measured], new: Sequence[Measured]) -> Sides:
    sides: Sides = {}
    for place, runs in enumerate((base, new)):
        for run in runs:
            for cell in run.cells:
                sides.setdefault(cell.key, ([], []))[place].append(cell)
    return sides


def _numbers(sides: Sides, delta_of: Callable[[str, str], float]) -> dict[Key, Numbers]:
    found = {}
    for key, (base, new) in sides.items():
        if without_two_times(base, new) is None:
            before, after = [c for c in base if has_time(c)], [c for c in new if has_time(c)]
            unit: Unit = "run" if max(len(before), len(after)) > 1 else "process"
            found[key] = numbers_of(units_of(before, unit), units_of(after, unit), delta_of(*key))
    return found


def _with_drifts(sides: Sides, numbers: Mapping[Key, Numbers]) -> dict[Key, Numbers]:
    """The same beside what the reference calls and the other backends of each case did."""
    by_case: dict[str, list[Key]] = defaultdict(list)
    for key in numbers:
        by_case[key[0]].append(key)
    found: dict[Key, Numbers] = {}
    for keys in by_case.values():
        moved: dict[tuple[int, int], float | None] = {}
        for key in keys:
            base, new = sides[key]
            # Cells of one run share the times of a case's reference calls: worked out once.
            shared = (id(base[0].reference_ns), id(new[0].reference_ns))
            if shared not in moved or max(len(base), len(new)) > 1:
                moved[shared] = reference_drift(base, new)
            others = [numbers[other].log_ratio for other in keys if other != key]
            found[key] = with_drift(numbers[key], Drift(moved[shared], moved_beside(others)))
    return {key: found[key] for key in numbers}


def _adjusted(numbers: Mapping[Key, Numbers]) -> dict[Key, Numbers]:
    family = {key: found for key, found in numbers.items() if found.p_value is not None}
    adjusted = benjamini_hochberg([found.p_value or 0.0 for found in family.values()])
    told = {
        key: replace(found, p_adjusted=p) for (key, found), p in zip(family.items(), adjusted, strict=True)
    }
    return {key: told.get(key, found) for key, found in numbers.items()}


def _compared(
    key: Key, sides: tuple[list[Cell], list[Cell]], numbers: Numbers | None, family: int, delta: float
) -> ComparedCell:
    base, new = sides
    cell = ComparedCell(
        case=key[0],
        rule=next((c.rule for c in (*new, *base) if c.rule), ""),
        backend=key[1],
        verdict="none",
        base_status=_status(base),
        new_status=_status(new),
        base_ms=_ms(base),
        new_ms=_ms(new),
        delta=delta,
    )
    if numbers is None:
        verdict, reason = without_two_times(base, new) or ("none", "")
        return replace(cell, verdict=verdict, reason=reason)
    verdict, reason = judged(numbers, family)
    interval = numbers.interval
    return replace(
        cell,
        verdict=verdict,
        reason=reason,
        ratio=numbers.ratio,
        low=None if interval is None else exp(interval.low),
        high=None if interval is None else exp(interval.high),
        confidence=None if interval is None else interval.confidence,
        p_value=numbers.p_value,
        p_adjusted=numbers.p_adjusted,
        least_told=numbers.least_told,
    )


def _status(cells: Sequence[Cell]) -> Status | None:
    """Of several runs the last that isn't ok, so that none is hidden; None where no run has the cell."""
    if not cells:
        return None
    return next((cell.status for cell in reversed(cells) if cell.status != "ok"), "ok")


def _ms(cells: Sequence[Cell]) -> float | None:
    times = [ns for cell in cells if has_time(cell) for ns in cell.processes_ns]
    return median(times) / 1e6 if times else None


def _name(runs: Sequence[Measured]) -> str:
    """How a side is called: its only file, or how many there are from which on."""
    if len(runs) == 1:
        return str(runs[0].path)
    return f"{len(runs)} runs from {runs[0].path}" if runs else "no runs"
