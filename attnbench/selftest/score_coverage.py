"""Scoring printed intervals: how often one launch's interval of a ratio holds what other launches find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import median

from attnbench.compare.comparison import Comparison, compare
from attnbench.compare.interval import printed_interval
from attnbench.runner.run_file import StoredRun
from attnbench.selftest.bounds import Count
from attnbench.selftest.findings import Scored, percent, rate
from attnbench.selftest.parts import Terms
from attnbench.types.record import Record

HELD_AT_LEAST = 0.93
HELD_AT_MOST = 0.97
_SIMULATED = 20_000
_SEED = 3


@dataclass(frozen=True)
class Held:
    """One printed interval: of which launch, case and backend, and whether it holds the others' value."""

    launch: int
    case: str
    backend: str
    low: float
    high: float
    pooled: float

    @property
    def holds(self) -> bool:
        """Whether the pooled value of the other launches lies within."""
        return self.low <= self.pooled <= self.high


def held(runs: Sequence[StoredRun], leave_out: bool = True) -> list[Held]:
    """Every interval that a launch printed, against the ratio over all sets of all other launches."""
    printed = [
        (number, record)
        for number, run in enumerate(runs)
        for record in run.records
        if record.ratio_low is not None and record.ratio_high is not None
        if record.baseline is not None and record.backend != record.baseline
    ]
    logs = {
        (number, record.case, record.backend): found.set_log_ratios
        for number, record in printed
        if (found := _compared(runs[number], record, leave_out)) is not None
    }
    intervals = []
    for number, record in printed:
        others = [
            log
            for (other, case, backend), found in logs.items()
            if other != number and (case, backend) == (record.case, record.backend)
            for log in found
        ]
        if others:
            low, high = record.ratio_low or 0.0, record.ratio_high or 0.0
            intervals.append(Held(number, record.case, record.backend, low, high, exp(median(others))))
    return intervals


def _compared(run: StoredRun, record: Record, leave_out: bool) -> Comparison | None:
    sets = [line for line in run.sets if line.case == record.case]
    return compare(sets, record.backend, record.baseline or "", leave_out=leave_out)


def score_coverage(runs: Sequence[StoredRun], terms: Terms) -> Scored:
    """How often the printed interval of a ratio holds the pooled value of the other launches.

    Launches are what counts as independent.
    """
    intervals = held(runs, terms.leave_out)
    clusters = [
        Count(sum(one.holds for one in of_launch), len(of_launch))
        for number in range(len(runs))
        if (of_launch := [one for one in intervals if one.launch == number])
    ]
    what = "printed interval of a ratio holds the other launches' value"
    findings = (
        rate(what, "at least", HELD_AT_LEAST, clusters, first=terms.as_planned, claims=1),
        rate(what, "at most", HELD_AT_MOST, clusters, first=False, claims=1),
    )
    notes = [f"{len(runs)} launches, each with processes of its own"]
    sets = {record.sets for run in runs for record in run.records if record.ratio_low is not None}
    if len(runs) > 1 and len(sets) == 1:
        confidence, expected = expected_coverage(sets.pop(), len(runs))
        notes.append(
            f"the interval is one of {percent(confidence)}; against a value pooled from "
            f"{len(runs) - 1} launches, {percent(expected)} is what launches that don't differ give"
        )
    widths = sorted(one.high / one.low - 1 for one in intervals)
    if widths:
        notes.append(f"the intervals are {percent(widths[len(widths) // 2])} wide in the middle of them")
    return Scored(findings=findings, notes=tuple(notes))


def expected_coverage(sets: int, launches: int) -> tuple[float, float]:
    """The interval's confidence, and how often it holds the median of the other launches' sets.

    By simulation with sets that are normally distributed and independent, within launches and between.
    """
    import numpy as np

    interval = printed_interval([float(i) for i in range(sets)])
    if interval is None:
        return 0.0, 0.0
    rng = np.random.default_rng(_SEED)
    mine = np.sort(rng.standard_normal((_SIMULATED, sets)), axis=1)
    low, high = mine[:, int(interval.low)], mine[:, int(interval.high)]
    pooled = np.median(rng.standard_normal((_SIMULATED, sets * (launches - 1))), axis=1)
    return interval.confidence, float(np.mean((low <= pooled) & (pooled <= high)))
