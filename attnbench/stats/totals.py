"""The time that one step of a model or program spends in attention: counts times times of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from attnbench.stats.intervals import time_interval
from attnbench.stats.sign_test import Interval

if TYPE_CHECKING:
    from attnbench.stats.answer import Lead, Times


@dataclass(frozen=True)
class Total:
    """Attention in one step, with one backend in all cases.

    backend: None for the fastest backend of each case. ms: the median over repetitions of the sum over cases,
    with its interval (None for too few). by_case: the median of each case's part, in ms.
    """

    backend: str | None
    ms: float
    interval: Interval | None
    by_case: Mapping[str, float]


def totals(leads: Sequence[Lead], times: Times, counts: Mapping[str, float]) -> tuple[Total, ...]:
    """Return the totals of the fastest of each case and of every backend with a time in all, the least first.

    counts: calls in one step, by case; cases without a time are left out. Cases of one repetition share
    processes and a moment of the machine, so the sum is taken in each repetition, and the interval over
    repetitions.
    """
    best = {lead.best.case: lead.best.backend for lead in leads}
    counts = {case: count for case, count in counts.items() if case in best}
    if not counts:
        return ()
    names = {name for sets in times.values() for taken in sets.values() for name in taken}
    found = [_total(None, best, times, counts)]
    found += [_total(name, dict.fromkeys(counts, name), times, counts) for name in sorted(names)]
    return tuple(sorted(filter(None, found), key=lambda one: (one.backend is not None, one.ms)))


def _total(
    backend: str | None, chosen: Mapping[str, str], times: Times, counts: Mapping[str, float]
) -> Total | None:
    parts = {
        case: {index: taken[chosen[case]] for index, taken in times.get(case, {}).items()
               if chosen[case] in taken}
        for case in counts
    }  # fmt: skip
    if not all(parts.values()):
        return None
    common = sorted(set.intersection(*map(set, parts.values())))
    ms = {case: count / 1e6 for case, count in counts.items()}
    sums = [sum(ms[case] * parts[case][index] for case in counts) for index in common]
    if not sums:
        return None
    by_case = {case: ms[case] * median(parts[case].values()) for case in counts}
    return Total(backend, median(sums), time_interval(sums), by_case)
