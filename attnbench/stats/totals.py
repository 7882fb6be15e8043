"""The time that one step of a model or program spends in attention: counts times times of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from attnbench.stats.intervals import of_median, time_interval
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


def saved(
    default: str, chosen: Mapping[str, str], times: Times, counts: Mapping[str, float]
) -> tuple[float, Interval | None]:
    """Return the ms that one step saves where chosen backends replace another, and its interval.

    The interval is over repetitions. default: what they replace. chosen: by case; each has times of both.
    """
    counts = {case: counts[case] for case in chosen}
    before, after = (_sums(names, times, counts) for names in (dict.fromkeys(chosen, default), chosen))
    apart = [before[index] - after[index] for index in before.keys() & after.keys()]
    return median(apart or [0.0]), of_median(apart)


def _total(
    backend: str | None, chosen: Mapping[str, str], times: Times, counts: Mapping[str, float]
) -> Total | None:
    sums = list(_sums(chosen, times, counts).values())
    if not sums:
        return None
    by_case = {
        case: count
        / 1e6
        * median(taken[chosen[case]] for taken in times[case].values() if chosen[case] in taken)
        for case, count in counts.items()
    }
    return Total(backend, median(sums), time_interval(sums), by_case)


def _sums(chosen: Mapping[str, str], times: Times, counts: Mapping[str, float]) -> dict[int, float]:
    """Return the ms of one step by repetition, of those in which all cases have a time."""
    sets = [
        {index for index, taken in times.get(case, {}).items() if chosen[case] in taken} for case in counts
    ]
    return {
        index: sum(count / 1e6 * times[case][index][chosen[case]] for case, count in counts.items())
        for index in sorted(set.intersection(*sets) if sets else ())
    }
