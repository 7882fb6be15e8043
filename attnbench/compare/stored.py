"""Compare two sides of stored runs, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import expm1, log, log1p
from statistics import median

from attnbench.compare.environment import check_alike, differences, one_sided
from attnbench.stats.tests import ends
from attnbench.stats.unpaired import (
    FEW_FACTOR,
    FEWEST,
    IDENTICAL,
    OWN_CACHE_BYTES,
    Drift,
    SideTimes,
    Unpaired,
    compare_unpaired,
    drift_beside,
    drift_together,
    log_ratio,
    moved_calls,
    percent,
    reference_drift,
)
from attnbench.stats.verdict import DELTA
from attnbench.types.compared import Cell, Compared, ComparedCell, Measured, Outcome
from attnbench.types.device import device_kind, shown_kinds, told_kinds
from attnbench.types.errors import BadInput
from attnbench.types.gc_paused import gc_paused
from attnbench.types.status import MEANING, Status
from attnbench.types.words import count_of, first_of

Key = tuple[str, str]
Runs = Sequence[Measured]
DeltaOf = Callable[[str, str], float]
"""Returns the least effect that counts for a case and a backend, as a share."""

CONVENTIONS = (
    "ratio: median time in new over median time in base, below 1 is faster; resolution: the least "
    "difference that these runs can show, from the spread of repetitions and the drift of the machine",
    "verdict: slower or faster, the ratio is beyond the resolution; same, the ratio, give or take its "
    "resolution, is within --delta; unclear, neither; "
    f"with fewer than {FEWEST} repetitions on a side the resolution is a factor of {FEW_FACTOR:g} or more",
)


@dataclass
class CellPair:
    """A cell on two sides: in each run of a side. timed_base, timed_new: those cells that have a time."""

    base: list[Cell] = field(default_factory=list)
    new: list[Cell] = field(default_factory=list)

    @cached_property
    def timed_base(self) -> list[Cell]:
        """The cells of base that have a time."""
        return list(filter(_has_time, self.base))

    @cached_property
    def timed_new(self) -> list[Cell]:
        """The cells of new that have a time."""
        return list(filter(_has_time, self.new))


def _has_time(cell: Cell) -> bool:
    return cell.status == "ok" and bool(cell.processes_ns)


def paired(base: Sequence[Measured], new: Sequence[Measured]) -> dict[Key, CellPair]:
    """Return every cell of either side, in the order of base and then of new."""
    pairs: dict[Key, CellPair] = defaultdict(CellPair)
    for run in base:
        for cell in run.cells:
            pairs[cell.key].base.append(cell)
    for run in new:
        for cell in run.cells:
            pairs[cell.key].new.append(cell)
    return dict(pairs)


def by_kind(runs: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Return the runs of each kind of device, with the cells that were measured on it."""
    found: dict[str, list[Measured]] = {}
    for run in runs:
        cells: dict[str, list[Cell]] = {}
        for cell in run.cells:
            cells.setdefault(device_kind(run.environment, cell.case), []).append(cell)
        for kind, those in cells.items():
            found.setdefault(kind, []).append(run if len(cells) == 1 else replace(run, cells=tuple(those)))
    return found


def _joined(side: Mapping[str, Runs], kinds: Mapping[str, str]) -> dict[str, list[Measured]]:
    """Join the runs of kinds that count as one."""
    joined: dict[str, list[Measured]] = {}
    for kind, runs in side.items():
        joined.setdefault(kinds[kind], []).extend(runs)
    return joined


def _sides(base: Sequence[Measured], new: Sequence[Measured]) -> dict[str, tuple[Runs, Runs]]:
    """Return the two sides of each kind of device.

    Sides without a common kind are one pair under the name "", which the caller refuses without ``force``.

    Raises:
        BadInput: there is no common kind, and one side has a case on several.
    """
    found = by_kind(base), by_kind(new)
    kinds = told_kinds(kind for side in found for kind in side)
    names = shown_kinds(kinds.values())
    before, after = (_joined(side, {kind: names[told] for kind, told in kinds.items()}) for side in found)
    if before.keys() & after.keys():
        return {kind: (before.get(kind, ()), after.get(kind, ())) for kind in before | after}
    for name, side in (("base", before), ("new", after)):
        cases = [case for runs in side.values() for case in {cell.case for run in runs for cell in run.cells}]
        if len(cases) > len(set(cases)):
            named = "; ".join(side)
            raise BadInput(
                f"{name} was measured on several kinds of device, the other side on none of them ({named}): "
                "compare runs of one kind"
            )
    return {"": (base, new)}


@gc_paused()
def compare_sides(
    base: Sequence[Measured],
    new: Sequence[Measured],
    *,
    delta_of: DeltaOf = lambda _case, _backend: DELTA,
    force: bool = False,
) -> Compared:
    """Compare two lists of stored runs, within each kind of device: every cell that either side has.

    Raises:
        BadInput: the sides differ in something that times depend on, without ``force``, or as :func:`_sides`.
    """
    sides = _sides(base, new)
    found = (one for pair in sides.values() if all(pair) for one in differences(*pair))
    unlike = tuple(sorted(dict.fromkeys(found), key=lambda one: not one.matters))
    if not force:
        check_alike(unlike)
    cells: list[ComparedCell] = []
    warnings = list(_warnings(base, new))
    for kind, (before, after) in sides.items():
        pairs = paired(before, after)
        compared = _compared(pairs, delta_of)
        cells += (_cell(key, pair, compared.get(key), delta_of(*key), kind) for key, pair in pairs.items())
        head = f"{kind}: " if len(sides) > 1 else ""
        notes = (*_cells_to_warn_of((*before, *after), pairs), *_together(compared))
        warnings += (f"{head}{note}" for note in notes)
    return Compared(
        base=_name(base),
        new=_name(new),
        cells=tuple(cells),
        differences=unlike,
        forced=any(difference.matters for difference in unlike),
        warnings=tuple(dict.fromkeys((*warnings, *one_sided(unlike)))),
        conventions=CONVENTIONS if any(cell.ratio is not None for cell in cells) else (),
        measured=f"measured on {' and '.join(sides)}" if sides else "",
    )


def _compared(pairs: Mapping[Key, CellPair], delta_of: DeltaOf) -> dict[Key, Unpaired]:
    """Compare the cells with two times; reference calls and other backends of the case show the drift."""
    by_case: dict[str, dict[Key, tuple[CellPair, SideTimes, SideTimes]]] = defaultdict(dict)
    for key, pair in pairs.items():
        if without_two_times(pair) is None:
            by_run = max(len(pair.timed_base), len(pair.timed_new)) > 1
            base, new = (_side(cells, by_run=by_run) for cells in (pair.timed_base, pair.timed_new))
            by_case[key[0]][key] = (pair, base, new)
    found: dict[Key, Unpaired] = {}
    for cells in by_case.values():
        logs = {key: log_ratio(base, new) for key, (_, base, new) in cells.items()}
        # Cells of one run share the reference calls of their case.
        moved: dict[tuple[object, ...], dict[str, float]] = {}
        for key, (pair, base, new) in cells.items():
            if pair.base == pair.new:
                found[key] = IDENTICAL
                continue
            far = any(_leaves_cache(cell) for cell in (*pair.timed_base, *pair.timed_new))
            shared = tuple(id(cell.reference_ns) for cell in (*pair.base, *pair.new))
            if shared not in moved:
                moved[shared] = moved_calls(_references(pair.timed_base), _references(pair.timed_new))
            drift = Drift(
                reference_drift(moved[shared], far=far),
                drift_beside([value for other, value in logs.items() if other != key]),
                drift_together(logs.values(), moved[shared].values()),
            )
            found[key] = compare_unpaired(base, new, drift, delta_of(*key))
    return found


def _leaves_cache(cell: Cell) -> bool:
    return cell.memory_bytes is None or cell.memory_bytes > OWN_CACHE_BYTES


def _side(cells: Sequence[Cell], *, by_run: bool) -> SideTimes:
    """Return the repetitions of the only run of a side, or ``by_run`` the median of each run."""
    if by_run:
        return SideTimes(tuple(median(cell.processes_ns) for cell in cells))
    return SideTimes(cells[0].processes_ns, cells[0].calls_ns, cells[0].parents, cells[0].in_a_row)


def _references(cells: Sequence[Cell]) -> Mapping[str, Sequence[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for cell in cells:
        for name, taken in cell.reference_ns.items():
            times[name] += taken
    return times


def _cell(key: Key, pair: CellPair, found: Unpaired | None, delta: float, kind: str) -> ComparedCell:
    verdict, reason = without_two_times(pair) or ("none", "")
    low, high, _ = ends(found)
    if found is not None:
        verdict, reason = found.word, found.reason
    return ComparedCell(
        case=key[0],
        rule=next((cell.rule for cell in (*pair.new, *pair.base) if cell.rule), ""),
        backend=key[1],
        verdict=verdict,
        reason=reason,
        base_status=_status(pair.base),
        new_status=_status(pair.new),
        base_ms=_median_ms(pair.timed_base),
        new_ms=_median_ms(pair.timed_new),
        ratio=None if found is None else found.ratio,
        low=low,
        high=high,
        delta=delta,
        resolution=None if found is None else found.resolution,
        device_kind=kind,
    )


def _name(runs: Sequence[Measured]) -> str:
    """Name a side by its only file, or by the number of its runs and the first."""
    if len(runs) == 1:
        return str(runs[0].path)
    return f"{runs[0].path} and {len(runs) - 1} more" if runs else "no runs"


def _status(cells: Sequence[Cell]) -> Status | None:
    """Return the last status that is not ok, so that none is hidden; None if no run has the cell."""
    failed = [cell.status for cell in cells if cell.status != "ok"]
    return failed[-1] if failed else "ok" if cells else None


def _median_ms(timed: Sequence[Cell]) -> float | None:
    times = [ns for cell in timed for ns in cell.processes_ns]
    return median(times) / 1e6 if times else None


def without_two_times(pair: CellPair) -> tuple[Outcome, str] | None:
    """Return the verdict on a cell that can't be compared, with the reason; None if it can.

    An output on the new side that is wrong, or less exact than in base, comes first. ``missing``: base has a
    time and new has not, base ran it and new can't, or a cell is ok without a time. ``none``: the cell is
    new, or failed in base, or nothing is known of a side.
    """
    base, new = pair.base, pair.new
    timed_base, timed_new = pair.timed_base, pair.timed_new
    exact = any(cell.status == "ok" for cell in base)
    wrong = next((c for c in new if c.status == "mismatch" or (exact and c.status == "inaccurate")), None)
    if wrong is not None:
        return "mismatch", wrong.reason or "its output is wrong"
    if timed_base and timed_new:
        meanings = {cell.fingerprint for cell in (*base, *new)} - {""}
        if len(meanings) > 1:
            return "missing", f"the case has another meaning on either side: {' and '.join(sorted(meanings))}"
        return None
    sides = (("base", base, timed_base), ("new", new, timed_new))
    for side, cells, timed in sides:
        if not timed and any(cell.status == "ok" for cell in cells):
            return "missing", f"ok in {side}, and yet without a sample"
    for side, cells, timed in sides:
        if not timed and any(MEANING[cell.status].unknown for cell in cells):
            return "none", _why_not(cells, side)
    # Of a suspect cell only the time is in doubt: what ran in base and does not in new is missing.
    ran = any(MEANING[cell.status].timed for cell in base)
    if timed_base or (ran and not any(MEANING[cell.status].timed for cell in new)):
        return "missing", _why_not(new, "new")
    if base and new and (base[-1].status, base[-1].reason) == (new[-1].status, new[-1].reason):
        return "none", _why_not(new, "both")
    return "none", "; ".join(_why_not(cells, side) for side, cells, timed in sides if not timed)


def _why_not(cells: Sequence[Cell], side: str) -> str:
    """Say why a side has no time of a cell."""
    if not cells:
        return f"not in {side}"
    cell = cells[-1]
    status = cell.status.replace("_", " ")
    return f"{status} in {side}" + (f" ({cell.reason})" if cell.reason else "")


_SHOWN = 3
_TOGETHER = 0.05
"""A warning names cases on which all backends changed by at least this share in one direction."""


def _warnings(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    """Yield what a strict gate fails on besides verdicts and cells."""
    runs = (*base, *new)
    for run in runs:
        yield from run.problems
    for origin in sorted({run.origin for run in runs}):
        versions = sorted({run.version for run in runs if run.origin == origin})
        if len(versions) > 1:
            yield f"files of unequal versions of the format of {origin}: {' and '.join(versions)}"
    for before in base:
        for after in new:
            if before.path.resolve() == after.path.resolve():
                yield f"{before.path} is on both sides: it is compared with itself"
            elif before.started == after.started and before.cells and before.cells == after.cells:
                yield f"{before.path} and {after.path} hold the same run"


def _cells_to_warn_of(runs: Sequence[Measured], pairs: Mapping[Key, CellPair]) -> Iterator[str]:
    keys: dict[str, set[Key]] = defaultdict(set)
    for run in runs:
        keys[run.origin] |= {cell.key for cell in run.cells}
    both = sorted(set.intersection(*keys.values())) if len(keys) > 1 else []
    groups: dict[str, list[Key]] = {f"measured by {' and by '.join(sorted(keys))}": both}
    for key, pair in pairs.items():
        timed_base, timed_new = pair.timed_base, pair.timed_new
        meanings = [MEANING[cell.status] for cell in (*pair.base, *pair.new)]
        failed = any(not (meaning.declined or meaning.unknown) for meaning in meanings)
        unknown = any(meaning.unknown for meaning in meanings)
        for words, applies in (
            ("that attnbench could not judge", unknown),
            ("only in base", not pair.new),
            ("only in new, with nothing to be compared with", not pair.base),
            (
                "without a time on both sides, because it failed",
                failed and pair.base and pair.new and not timed_base and not timed_new,
            ),
            ("with a time in new alone", pair.base and timed_new and not timed_base),
            ("with a time in some runs of base alone", 0 < len(timed_base) < len(pair.base)),
            ("with a time in some runs of new alone", 0 < len(timed_new) < len(pair.new)),
        ):
            if applies:
                groups.setdefault(words, []).append(key)
    for words, found in groups.items():
        if found:
            names = [f"{backend} on {case}" if backend else case for case, backend in found]
            yield f"{count_of(len(found), 'cell')} {words}: {first_of(names, _SHOWN)}"


def _together(found: Mapping[Key, Unpaired]) -> Iterator[str]:
    """Yield cases on which all backends changed alike: the machine did, or something they share."""
    by_case: dict[str, list[float]] = defaultdict(list)
    untold: set[str] = set()
    for (case, _), compared in found.items():
        by_case[case].append(log(compared.ratio))
        if compared.word not in ("slower", "faster"):
            untold.add(case)
    moved = {
        case: min(logs, key=abs)
        for case, logs in by_case.items()
        if case in untold
        and len(logs) > 1
        and (min(logs) > log1p(_TOGETHER) or max(logs) < -log1p(_TOGETHER))
    }
    for case, least in list(moved.items())[:_SHOWN]:
        direction = "slower" if least > 0 else "faster"
        yield (
            f"all {len(by_case[case])} backends are {direction} by {percent(expm1(abs(least)))} or more "
            f"on {case}: the machine, or something they share; only a live comparison tells which"
        )
    if len(moved) > _SHOWN:
        yield f"and so on {count_of(len(moved) - _SHOWN, 'more case')}"
