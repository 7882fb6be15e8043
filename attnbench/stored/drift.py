"""How far the machine itself moved between two sides, by what was measured beside a cell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite, log
from statistics import median

from attnbench.types.measured import Cell

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
