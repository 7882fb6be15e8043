"""Records with their verdicts, which depend on the other records of the run, and metrics of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Real
from typing import Any, Literal

from attnbench.cases.ids import parse_case
from attnbench.plugins.calling import Raised, call, tell, traced
from attnbench.plugins.registry import Entry
from attnbench.stats.verdict import verdicts
from attnbench.types.case import Case
from attnbench.types.extensions import Metric, Word
from attnbench.types.record import Record
from attnbench.types.status import MEANING
from attnbench.types.words import clean

BASELINE: Literal["baseline"] = "baseline"


@dataclass(frozen=True)
class Added:
    """The cell of a column that a plugin adds: its metric, who brings that, and the value, None for none."""

    entry: Entry[Metric]
    value: float | None


@dataclass(frozen=True)
class Judged:
    """A record, and what its ratio amounts to among the others of its run.

    verdict: the word; ``baseline`` for the baseline itself; None where there is no ratio to judge.
    p_adjusted: its p-value after Benjamini-Hochberg over all ratios of the run. why: for ``unclear``, what
    is missing and what to do about it. run: the id of its run, "" where that isn't said. added: a cell for
    each metric that a plugin brings.
    """

    record: Record
    verdict: Word | Literal["baseline"] | None = None
    p_adjusted: float | None = None
    why: str = ""
    run: str = ""
    added: tuple[Added, ...] = ()


def judge(records: Sequence[Record], run: str = "") -> list[Judged]:
    """All records of **one run**, in their order, with their verdicts; ``run``: its id.

    The run is the family over which p-values are adjusted: judge the runs of several files one by one.
    """
    said = verdicts(records)
    judged = []
    for record in records:
        verdict = said.get((record.case, record.backend))
        if record.status != "ok" or record.ratio is None:
            judged.append(Judged(record, run=run))
        elif record.backend == record.baseline:
            judged.append(Judged(record, BASELINE, run=run))
        elif verdict is None:
            judged.append(Judged(record, run=run))
        else:
            judged.append(Judged(record, verdict.word, verdict.p_adjusted, verdict.reason, run))
    return judged


@dataclass(frozen=True)
class MetricColumn:
    """A metric, who brings it, and for each run its value of each record, None where there is none."""

    entry: Entry[Metric]
    values: tuple[tuple[float | None, ...], ...]


def metric_columns(
    entries: Iterable[Entry[Metric]], runs: Sequence[Sequence[Record]]
) -> tuple[MetricColumn, ...]:
    """Ask every metric of the records of all runs.

    Where one raises, or gives what is no finite number, the cell stays empty; stderr has one line for each
    metric that did so.
    """
    names = {record.case for records in runs for record in records}
    cases = {name: parse_case(name) for name in names}
    return tuple(MetricColumn(entry, _values(entry, runs, cases)) for entry in entries)


def judge_all(
    ids: Sequence[str], runs: Sequence[Sequence[Record]], columns: Sequence[MetricColumn]
) -> list[list[Judged]]:
    """The records of each run with their verdicts, and with the columns that were made of these runs."""
    return [
        [
            replace(one, added=tuple(Added(column.entry, column.values[run][place]) for column in columns))
            for place, one in enumerate(judge(records, ids[run]))
        ]
        for run, records in enumerate(runs)
    ]


def _values(
    entry: Entry[Metric], runs: Sequence[Sequence[Record]], cases: dict[str, Case]
) -> tuple[tuple[float | None, ...], ...]:
    what, faults, asked = f"{entry.source}: the metric {entry.record.name!r}", [], 0

    def cell(record: Record) -> float | None:
        nonlocal asked
        if not MEANING[record.status].timed:
            return None
        asked += 1
        try:
            return _value(entry.record, record, cases[record.case])
        except Raised as failure:
            faults.append(f"{failure} for {record.backend} on {record.case}")
            return None

    with traced(what):
        found = tuple(tuple(cell(record) for record in records) for records in runs)
    if faults:
        which = "its cell stays" if len(faults) == 1 else f"{len(faults)} of its {asked} cells stay"
        tell(f"{what} {faults[0]}; {which} empty")
    return found


def _value(metric: Metric, record: Record, case: Case) -> float | None:
    """One cell; raises :class:`Raised` with what is wrong as a verb and its object."""
    try:
        value: Any = call(metric.value, record, case)
    except Raised as failure:
        raise Raised(f"raised {failure}") from failure
    try:
        number = None if value is None else call(_finite, value)
    except Raised as failure:
        raise Raised(f"gave a value that raised {failure}") from failure
    if number is None and value is not None:
        shown = clean(repr(value) if isinstance(value, str) else value)
        raise Raised(f"gave {shown}, where a finite number or None is needed,")
    return number


def _finite(value: Any) -> float | None:
    """A number as float, those of numpy too; None where it is none, or none that a float holds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
