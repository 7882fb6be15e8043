"""Records with their verdicts, which depend on the other records of the run, and metrics of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from attnbench.cases.ids import parse_case
from attnbench.plugins.calling import Raised, call, tell, traced
from attnbench.plugins.registry import Entry
from attnbench.stats.verdict import Verdict, verdicts
from attnbench.timing.allocator import UNKNOWN_CACHE_BYTES
from attnbench.types.extensions import Metric, Word
from attnbench.types.record import Record
from attnbench.types.status import MEANING
from attnbench.types.words import clean

if TYPE_CHECKING:
    from attnbench.stats.answer import RunAnswer
    from attnbench.stats.caches import CacheStep

BASELINE: Literal["baseline"] = "baseline"


@dataclass(frozen=True)
class JudgedRecord:
    """A record, and its verdict among the others of its run.

    verdict: ``baseline`` for the baseline itself; None without a ratio. p_adjusted: its p-value after
    Benjamini-Hochberg over all ratios of the run. why: for ``unclear``, what is missing and what to do about
    it. hint: the same in a word, where the interval leaves out 1 (:class:`~attnbench.stats.verdict.Verdict`).
    run: the id of its run, "" if unknown. added: the value for each metric that a plugin brings. device_kind:
    see :mod:`attnbench.types.device`.
    """

    record: Record
    verdict: Word | Literal["baseline"] | None = None
    p_adjusted: float | None = None
    why: str = ""
    run: str = ""
    added: Mapping[Entry[Metric], float | None] = field(default_factory=dict)
    hint: str = ""
    device_kind: str = ""


@dataclass(frozen=True)
class ReportPart:
    """Outcomes that are told together: those of one run, or of several runs on one kind of device.

    answer: None for a live comparison. runs: the places of the runs. again: how often a case was measured by
    a run that is left out for this case. torch: its version, or versions. caches: what ways to hold a cache
    cost, where cases differ in that. not_asked: backends that no run asked, because others were named: as its
    file says, or timed in such cases by a run that is told beside it. cache_bytes: of the largest cache of
    the processor, assumed where it is unknown. keeps_memory: whether workers kept freed memory between calls.
    suites: by case the suite that it was measured for, where one report has several suites. asked: by case
    the backends that its run asked by name, where another run beside it asked others.
    """

    judged: Sequence[JudgedRecord]
    answer: RunAnswer | None = None
    kind: str = ""
    runs: tuple[int, ...] = (0,)
    again: int = 0
    torch: str = ""
    caches: tuple[CacheStep, ...] = ()
    not_asked: tuple[str, ...] = ()
    cache_bytes: int = UNKNOWN_CACHE_BYTES
    keeps_memory: bool = False
    suites: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, frozenset[str]] = field(default_factory=dict)


def several_kinds(judged: Iterable[JudgedRecord]) -> bool:
    """Return whether outcomes are of more than one kind of device."""
    return len({one.device_kind for one in judged}) > 1


def judge(records: Sequence[Record], run: str = "") -> list[JudgedRecord]:
    """Add verdicts to all records of **one run**, in their order; ``run``: its id.

    p-values are adjusted over the run, so the runs of several files are judged one by one.
    """
    found = verdicts(records)
    return [_judged(record, found.get((record.case, record.backend)), run) for record in records]


def _judged(record: Record, verdict: Verdict | None, run: str) -> JudgedRecord:
    if verdict is not None:
        return JudgedRecord(record, verdict.word, verdict.p_adjusted, verdict.reason, run, hint=verdict.hint)
    baseline = record.status == "ok" and record.ratio is not None and record.backend == record.baseline
    return JudgedRecord(record, BASELINE if baseline else None, run=run)


@dataclass(frozen=True)
class MetricColumn:
    """A metric with its plugin, and for each run its value for each record, or None."""

    entry: Entry[Metric]
    values: tuple[tuple[float | None, ...], ...]


def metric_columns(
    entries: Iterable[Entry[Metric]], runs: Sequence[Sequence[Record]]
) -> tuple[MetricColumn, ...]:
    """Compute every metric for the records of all runs.

    A cell stays empty if the metric raises or returns no finite number; stderr then has one line for that
    metric.
    """
    return tuple(MetricColumn(entry, _values(entry, runs)) for entry in entries)


def judge_all(
    ids: Sequence[str], runs: Sequence[Sequence[Record]], columns: Sequence[MetricColumn]
) -> list[list[JudgedRecord]]:
    """Add verdicts and the columns of plugins to the records of each run."""
    return [
        [
            replace(one, added={column.entry: column.values[run][place] for column in columns})
            for place, one in enumerate(judge(records, ids[run]))
        ]
        for run, records in enumerate(runs)
    ]


def _values(entry: Entry[Metric], runs: Sequence[Sequence[Record]]) -> tuple[tuple[float | None, ...], ...]:
    what, faults, asked = f"{entry.source}: the metric {entry.record.name!r}", [], 0

    def cell(record: Record) -> float | None:
        nonlocal asked
        if not MEANING[record.status].timed:
            return None
        asked += 1
        try:
            return _value(entry.record, record)
        except Raised as failure:
            faults.append(f"{failure} for {record.backend} on {record.case}")
            return None

    with traced(what):
        found = tuple(tuple(cell(record) for record in records) for records in runs)
    if faults:
        which = "its cell stays" if len(faults) == 1 else f"{len(faults)} of its {asked} cells stay"
        tell(f"{what} {faults[0]}; {which} empty")
    return found


def _value(metric: Metric, record: Record) -> float | None:
    """Compute one cell; raises :class:`Raised` with the problem as a verb and its object."""
    try:
        value: Any = call(metric.value, record, parse_case(record.case))
        number = None if value is None else call(_finite, value)
    except Raised as failure:
        raise Raised(f"raised {failure}") from failure
    if number is None and value is not None:
        shown = clean(repr(value) if isinstance(value, str) else value)
        raise Raised(f"gave {shown}, where a finite number or None is needed,")
    return number


def _finite(value: Any) -> float | None:
    """Convert a number, of numpy too, to float; None if it is not a number or no float holds it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
