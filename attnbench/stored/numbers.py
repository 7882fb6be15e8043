"""What two sides of a cell come to: ratio, interval, p-value, and the least that could be told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, inf, log, log1p

from attnbench.compare.interval import Interval
from attnbench.compare.ranks import Ranked, ranked
from attnbench.compare.verdict import LEVEL
from attnbench.stored.drift import NOTHING_BESIDE, Drift
from attnbench.stored.units import Units

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
