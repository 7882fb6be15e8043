"""The independent values that a side has of a cell, and how far they differ among themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import median
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
