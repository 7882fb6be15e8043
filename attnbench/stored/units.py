"""The independent values that a side has of a cell, and how far they differ among themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log
from statistics import median, quantiles
from typing import Literal

from attnbench.types.measured import Cell

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
    lie within; logarithms, None where there is but one unit.
    """

    logs: tuple[float, ...]
    unit: Unit
    times_ns: tuple[float, ...]
    calls_ns: tuple[float, ...]
    spread: float | None
    span: float | None

    @property
    def median_ns(self) -> float:
        """The median over processes."""
        return median(self.times_ns)


def has_time(cell: Cell) -> bool:
    """Whether a cell has a time that can be believed."""
    return cell.status == "ok" and bool(cell.processes_ns) and all(map(_is_time, cell.processes_ns))


def _is_time(ns: float) -> bool:
    return isfinite(ns) and ns > 0


def units_of(cells: Sequence[Cell], unit: Unit) -> Units:
    """The units of a side: of one run its processes, of several the runs.

    cells: those of each run that has a time, one or more. Processes that were kept over several sets are one
    unit each.
    """
    times = tuple(ns for cell in cells for ns in cell.processes_ns)
    if unit == "run":
        logs = tuple(log(median(cell.processes_ns)) for cell in cells)
        spread = _spread(logs)
    else:
        logs = tuple(map(log, times))
        spread = _spread(logs)
        if spread is not None:
            spread = max(spread, _between_parents(logs, cells[0].parents))
    return Units(
        logs=logs,
        unit=unit,
        times_ns=times,
        calls_ns=cells[0].calls_ns if len(times) == 1 else (),
        spread=spread,
        span=max(logs) - min(logs) if len(logs) > 1 else None,
    )


def _spread(logs: Sequence[float]) -> float | None:
    if len(logs) < 2:
        return None
    tenths = quantiles(logs, n=10, method="inclusive")
    return tenths[-1] - tenths[0]


def _between_parents(logs: Sequence[float], parents: Sequence[int]) -> float:
    """How far the medians of the forks of one parent and of another are apart."""
    if len(parents) != len(logs):
        return 0.0
    forks: dict[int, list[float]] = defaultdict(list)
    for parent, value in zip(parents, logs, strict=True):
        forks[parent].append(value)
    if len(forks) == 1:
        return ONE_PARENT
    medians = [median(values) for values in forks.values()]
    return max(medians) - min(medians)
