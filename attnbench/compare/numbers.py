"""What two sides of a cell come to: independent units, drift of the machine, ratio and interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, inf, isfinite, log, log1p
from statistics import median
from typing import Literal

from attnbench.stats.interval import Interval
from attnbench.stats.ranks import Ranked, ranked
from attnbench.stats.verdict import LEVEL
from attnbench.types.compared import Cell

ENOUGH_BESIDE = 3
"""So many other backends of a case say how far all of them moved. Reference calls alone don't: of ten
backends that had not changed all were some 28 % apart in two runs, and no reference call more than 9 %."""


@dataclass(frozen=True)
class Drift:
    """Logarithms, 0 or more. reference: what the middle one of the reference calls moved by; beside: what the
    middle one of the other backends of the case moved by; None where there is none, or too few."""

    reference: float | None
    beside: float | None

    @property
    def most(self) -> float:
        """The larger of the two."""
        return max(self.reference or 0.0, self.beside or 0.0)


NOTHING_BESIDE = Drift(None, None)


def reference_drift(base: Sequence[Cell], new: Sequence[Cell]) -> float | None:
    """What the reference calls of a case moved by from side to side; None where no call was made on both.

    Of each call the medians over all its sets are compared. The middle one counts: an empty call of 60 ns
    took 95 in one case of a run, for no reason that anything else knew of.
    """
    before, after = _references(base), _references(new)
    moved = [abs(after[name] - before[name]) for name in before.keys() & after.keys()]
    return median(moved) if moved else None


def _references(cells: Sequence[Cell]) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for cell in cells:
        for name, taken in cell.reference_ns.items():
            times.setdefault(name, []).extend(ns for ns in taken if isfinite(ns) and ns > 0)
    return {name: log(median(taken)) for name, taken in times.items() if taken}


def moved_beside(others: Collection[float]) -> float | None:
    """What the middle one of other backends' log ratios is from 0; None of fewer than ``ENOUGH_BESIDE``."""
    return abs(median(others)) if len(others) >= ENOUGH_BESIDE else None


Unit = Literal["process", "run"]

ONE_PARENT = 0.05
"""What the times of a lone prepared process may be off by, as a logarithm, whatever all its forks say: they
have its memory in common, and with it what luck made of that."""


@dataclass(frozen=True)
class Units:
    """A side of a cell.

    logs: of the time per call in ns of each unit. unit: what each of them is. times_ns: as logs, but always
    of processes. calls_ns: of a lone process, see :class:`Cell`. spread: what eight in ten of the units lie
    within, or what those of one parent differ by from those of another, whichever is more; span: what all
    lie within; logarithms, 0 where there is but one unit.
    """

    logs: tuple[float, ...]
    unit: Unit
    times_ns: tuple[float, ...]
    calls_ns: tuple[float, ...]
    spread: float
    span: float


def units_of(cells: Sequence[Cell], unit: Unit) -> Units:
    """The units of a side: of one run its processes, of several the runs.

    cells: those of each run that has a time, one or more.
    """
    times = cells[0].processes_ns
    if len(cells) > 1:
        times = tuple(ns for cell in cells for ns in cell.processes_ns)
    if unit == "run":
        logs = tuple(log(median(cell.processes_ns)) for cell in cells)
        spread = spread_of(logs)
    else:
        logs = tuple(map(log, times))
        spread = max(spread_of(logs), _between_parents(logs, cells[0].parents))
    return Units(
        logs=logs,
        unit=unit,
        times_ns=times,
        calls_ns=cells[0].calls_ns if len(times) == 1 else (),
        spread=spread,
        span=max(logs) - min(logs),
    )


def spread_of(values: Sequence[float]) -> float:
    """From the first tenth of values to the last, between order statistics by linear interpolation."""
    ordered = sorted(values)
    last = len(ordered) - 1
    if last < 1:
        return 0.0
    rank, part = divmod(last, 10)
    inner = part / 10
    lower = ordered[rank] + inner * (ordered[rank + 1] - ordered[rank])
    upper = ordered[last - rank] - inner * (ordered[last - rank] - ordered[last - rank - 1])
    return upper - lower


def _between_parents(logs: Sequence[float], parents: tuple[int, ...]) -> float:
    """How far the medians of the forks of one parent and of another are apart."""
    if len(parents) != len(logs) or len(logs) < 2:
        return 0.0
    families = _families(parents)
    if len(families) == 1:
        return ONE_PARENT
    medians = [median([logs[i] for i in places]) for places in families]
    return max(medians) - min(medians)


@lru_cache(maxsize=1024)
def _families(parents: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The places of the forks of each parent."""
    found: dict[int, list[int]] = {}
    for place, parent in enumerate(parents):
        found.setdefault(parent, []).append(place)
    return tuple(map(tuple, found.values()))


LONE_FACTOR = 2.0
"""Of one process a side nobody knows how far processes differ; a ratio within this is no verdict."""


@dataclass
class Numbers:
    """Logarithms of new over base. interval: at 1 - ``LEVEL``, so that it leaves out 0 exactly where the
    p-value is a verdict's; None of too few units. p_value: None where a side has one unit.

    drift, spreads, least_log: once the other cells of the case are known (:meth:`settle`). spreads: what
    units of base and of new differ by. least_log: the smallest effect that a verdict can rest on.
    """

    base: Units
    new: Units
    delta: float
    log_ratio: float
    interval: Interval | None
    p_value: float | None
    drift: Drift = NOTHING_BESIDE
    spreads: tuple[float, float] = (inf, inf)
    least_log: float = inf

    @property
    def lone(self) -> bool:
        """Whether a side has but one unit."""
        return self.p_value is None

    @property
    def least_told(self) -> float:
        """The smallest effect that a verdict can rest on as a share: 0.1 for 10 %."""
        return expm1(self.least_log)

    def settle(self, drift: Drift) -> None:
        """Fill in what the machine did, and what can be told beside that.

        Sets of one run have a moment in common. What was measured beside them tells of it; where that is
        nothing, the whole span of the sets stands in for it. All add up: the middle of either side may be off
        by as much as its own processes differ, in opposite directions, and the machine moved besides. (Three
        servers that differ twice as much as their forks call identical code slower or faster in 0.05 % of
        cells then; the larger of the two spreads instead of both, in 0.8 %.) Of lone units nothing within
        ``LONE_FACTOR`` is told.
        """
        base, new = self.base, self.new
        self.drift = drift
        blind = drift.beside is None and base.unit == "process"
        self.spreads = (base.span, new.span) if blind else (base.spread, new.spread)
        self.least_log = max(log1p(self.delta), sum(self.spreads) + drift.most)
        if self.lone:
            self.least_log = max(self.least_log, log(LONE_FACTOR))


def numbers_of(cells: Sequence[tuple[Units, Units, float]]) -> list[Numbers]:
    """What can be said of each cell by itself: of its units in base and in new, and the least effect.

    Cells with as many units go through the ranks together, which takes far less time.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, (base, new, _) in enumerate(cells):
        alike[len(base.logs), len(new.logs)].append(place)
    found: dict[int, Ranked] = {}
    for places in alike.values():
        bases, news = [cells[place][0].logs for place in places], [cells[place][1].logs for place in places]
        found.update(zip(places, ranked(bases, news, 1 - LEVEL), strict=True))
    return [_numbers(*cell, found[place]) for place, cell in enumerate(cells)]


def _numbers(base: Units, new: Units, delta: float, told: Ranked) -> Numbers:
    lone = len(base.logs) < 2 or len(new.logs) < 2
    return Numbers(
        base=base,
        new=new,
        delta=delta,
        log_ratio=told.shift,
        interval=None if lone else told.interval,
        p_value=None if lone else told.p_value,
    )


def apart(base: Units, new: Units) -> bool:
    """Whether the middle halves of what two lone processes' calls took don't overlap.

    A side of several processes counts with all of them; a lone one whose calls aren't known overlaps
    everything.
    """
    below, above = _middle(base), _middle(new)
    if below is None or above is None:
        return False
    return below[1] < above[0] or above[1] < below[0]


def _middle(side: Units) -> tuple[float, float] | None:
    if len(side.times_ns) > 1:
        return min(side.times_ns), max(side.times_ns)
    return (side.calls_ns[1], side.calls_ns[3]) if len(side.calls_ns) == 5 else None
