"""Two sides of stored runs, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp

from attnbench.compare.environment import check_alike, differences, untold, warnings_of
from attnbench.compare.judging import judged
from attnbench.compare.numbers import (
    Drift,
    Numbers,
    Unit,
    moved_beside,
    numbers_of,
    reference_drift,
    units_of,
)
from attnbench.compare.pairing import Key, Pair, median_ms, paired, status_of, without_two_times
from attnbench.stats.verdict import FALSE_DISCOVERIES, LEVEL, benjamini_hochberg
from attnbench.types.compared import Compared, ComparedCell, Measured, Outcome
from attnbench.types.uncollected import uncollected

CONVENTIONS = (
    "ratio: time in new over time in base, below 1 is faster; told from: the least difference that could be "
    "told: what processes of base and of new differ by and what the machine moved by between, together",
    f"verdict: slower or faster, the ratio is beyond what can be told, with p ≤ {LEVEL:g} by ranks of "
    f"processes (of runs, where a side has several) and ≤ {FALSE_DISCOVERIES:g} after Benjamini-Hochberg "
    "over the cells; same, the interval, the processes and the machine lie within the least effect; unclear, "
    "none of these",
)

DELTA = 0.02


@uncollected()
def compare_sides(
    base: Sequence[Measured],
    new: Sequence[Measured],
    *,
    delta_of: Callable[[str, str], float] = lambda _case, _backend: DELTA,
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
    pairs = paired(base, new)
    untimed = {key: found for key, pair in pairs.items() if (found := without_two_times(pair)) is not None}
    numbers = _numbers({key: pair for key, pair in pairs.items() if key not in untimed}, delta_of)
    p_values = {key: found.p_value for key, found in numbers.items() if found.p_value is not None}
    adjusted = dict(zip(p_values, benjamini_hochberg(list(p_values.values())), strict=True))
    cells = []
    for key, pair in pairs.items():
        delta = delta_of(*key)
        if key in untimed:
            cells.append(_cell(key, pair, *untimed[key], None, None, delta))
        else:
            verdict, reason = judged(numbers[key], adjusted.get(key), len(adjusted))
            cells.append(_cell(key, pair, verdict, reason, numbers[key], adjusted.get(key), delta))
    return Compared(
        base=_name(base),
        new=_name(new),
        cells=tuple(cells),
        differences=unlike,
        forced=any(difference.matters for difference in unlike),
        warnings=(*warnings_of(base, new, pairs, numbers), *untold(unlike)),
        conventions=CONVENTIONS if numbers else (),
    )


def _numbers(pairs: Mapping[Key, Pair], delta_of: Callable[[str, str], float]) -> dict[Key, Numbers]:
    """Of each cell what it says by itself, beside what the machine and the case's other backends did."""
    of_units = []
    for key, pair in pairs.items():
        unit: Unit = "run" if max(len(pair.timed_base), len(pair.timed_new)) > 1 else "process"
        of_units.append((units_of(pair.timed_base, unit), units_of(pair.timed_new, unit), delta_of(*key)))
    numbers = dict(zip(pairs, numbers_of(of_units), strict=True))
    by_case: dict[str, dict[Key, Numbers]] = {}
    for key, found in numbers.items():
        by_case.setdefault(key[0], {})[key] = found
    for beside in by_case.values():
        # Cells of one run share the reference calls of their case: worked out once.
        moved: dict[tuple[int, ...], float | None] = {}
        for key, found in beside.items():
            pair = pairs[key]
            shared = tuple(id(cell.reference_ns) for cell in (*pair.timed_base, *pair.timed_new))
            if shared not in moved:
                moved[shared] = reference_drift(pair.timed_base, pair.timed_new)
            others = [other.log_ratio for name, other in beside.items() if name != key]
            found.settle(Drift(moved[shared], moved_beside(others)))
    return numbers


def _cell(
    key: Key,
    pair: Pair,
    verdict: Outcome,
    reason: str,
    numbers: Numbers | None,
    p_adjusted: float | None,
    delta: float,
) -> ComparedCell:
    interval = None if numbers is None else numbers.interval
    return ComparedCell(
        case=key[0],
        rule=next((cell.rule for cell in (*pair.new, *pair.base) if cell.rule), ""),
        backend=key[1],
        verdict=verdict,
        reason=reason,
        base_status=status_of(pair.base),
        new_status=status_of(pair.new),
        base_ms=median_ms(pair.timed_base),
        new_ms=median_ms(pair.timed_new),
        ratio=None if numbers is None else exp(numbers.log_ratio),
        low=None if interval is None else exp(interval.low),
        high=None if interval is None else exp(interval.high),
        confidence=None if interval is None else interval.confidence,
        p_value=None if numbers is None else numbers.p_value,
        p_adjusted=p_adjusted,
        delta=delta,
        least_told=None if numbers is None else numbers.least_told,
    )


def _name(runs: Sequence[Measured]) -> str:
    """How a side is called: its only file, or how many there are from which on."""
    if len(runs) == 1:
        return str(runs[0].path)
    return f"{len(runs)} runs from {runs[0].path}" if runs else "no runs"
