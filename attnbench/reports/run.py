"""The records of runs, for reports: with verdicts and the metrics of plugins, in parts by kind of device, as
a frame, and as an exit status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnbench.cases.ids import parse_case
from attnbench.plugins.calling import Raised, call, tell, traced
from attnbench.plugins.registry import Entry
from attnbench.stats.answer import Answer, answer
from attnbench.stats.verdict import Verdict, verdicts
from attnbench.types.case import Case
from attnbench.types.device import device_kind
from attnbench.types.extensions import Metric, Word
from attnbench.types.record import Manifest, Record
from attnbench.types.status import MEANING
from attnbench.types.words import clean

if TYPE_CHECKING:
    import pandas as pd


BASELINE: Literal["baseline"] = "baseline"


@dataclass(frozen=True)
class Added:
    """The cell of a column that a plugin adds: the metric with its plugin, and the value or None."""

    entry: Entry[Metric]
    value: float | None


@dataclass(frozen=True)
class Judged:
    """A record, and its verdict among the others of its run.

    verdict: ``baseline`` for the baseline itself; None without a ratio. p_adjusted: its p-value after
    Benjamini-Hochberg over all ratios of the run. why: for ``unclear``, what is missing and what to do about
    it. hint: the same in a word, where the interval leaves out 1 (:class:`~attnbench.stats.verdict.Verdict`).
    run: the id of its run, "" if unknown. added: a cell for each metric that a plugin brings. device_kind:
    see :mod:`attnbench.types.device`.
    """

    record: Record
    verdict: Word | Literal["baseline"] | None = None
    p_adjusted: float | None = None
    why: str = ""
    run: str = ""
    added: tuple[Added, ...] = ()
    hint: str = ""
    device_kind: str = ""


@dataclass(frozen=True)
class Part:
    """Outcomes that are told together: those of one run, or of several runs on one kind of device.

    answer: None for a live comparison. runs: the places of the runs. again: how often a case was measured by
    a run that is left out for this case. torch: its version, or versions.
    """

    judged: Sequence[Judged]
    answer: Answer | None = None
    kind: str = ""
    runs: tuple[int, ...] = (0,)
    again: int = 0
    torch: str = ""


def several_kinds(judged: Iterable[Judged]) -> bool:
    """Return whether outcomes are of more than one kind of device."""
    return len({one.device_kind for one in judged}) > 1


def judge(records: Sequence[Record], run: str = "") -> list[Judged]:
    """Add verdicts to all records of **one run**, in their order; ``run``: its id.

    p-values are adjusted over the run, so the runs of several files are judged one by one.
    """
    found = verdicts(records)
    return [_judged(record, found.get((record.case, record.backend)), run) for record in records]


def _judged(record: Record, verdict: Verdict | None, run: str) -> Judged:
    if record.status == "ok" and record.ratio is not None:
        if record.backend == record.baseline:
            return Judged(record, BASELINE, run=run)
        if verdict is not None:
            return Judged(record, verdict.word, verdict.p_adjusted, verdict.reason, run, hint=verdict.hint)
    return Judged(record, run=run)


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
    names = {record.case for records in runs for record in records}
    cases = {name: parse_case(name) for name in names}
    return tuple(MetricColumn(entry, _values(entry, runs, cases)) for entry in entries)


def judge_all(
    ids: Sequence[str], runs: Sequence[Sequence[Record]], columns: Sequence[MetricColumn]
) -> list[list[Judged]]:
    """Add verdicts and the columns of plugins to the records of each run."""
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
    """Compute one cell; raises :class:`Raised` with the problem as a verb and its object."""
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
    """Convert a number, of numpy too, to float; None if it is not a number or no float holds it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def exit_code(records: Iterable[Record], named: Collection[str] = ()) -> int:
    """Return 0 if all is fine, 1 if a check failed, else 3: something could not be measured.

    ``unsupported``, ``unavailable`` and ``suspect`` are fine, and ``inaccurate`` as declared. But a backend
    that the user asked for by name (``named``) must pass on at least one case.
    """
    records = tuple(records)
    codes = {MEANING[record.status].exit_code for record in records if not record.passed}
    if 1 in codes:
        return 1
    present = {record.backend for record in records}
    passed = {record.backend for record in records if record.passed}
    return 3 if 3 in codes or (set(named) & present) - passed else 0


@dataclass(frozen=True, repr=False)
class Run:
    """One run, or several read together.

    paths: the file of each run, the same for runs of a merged file. manifests: one for each run. by_file: for
    each run its records, one for each case and backend. unfinished: the files with a run that was cut off.
    metrics: the columns that plugins add. times: for each run its repetitions in short: the case, the number
    of the repetition, and the median time of a call of each backend. flaws: what stored runs lack, in words.
    """

    paths: tuple[Path, ...]
    manifests: tuple[Manifest, ...]
    by_file: tuple[tuple[Record, ...], ...]
    unfinished: tuple[Path, ...] = ()
    metrics: tuple[MetricColumn, ...] = ()
    times: tuple[tuple[tuple[str, int, Mapping[str, float]], ...], ...] = ()
    flaws: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line for a notebook: the files, and a count of the records by status."""
        from attnbench.reports.overview import counted

        files = ", ".join(dict.fromkeys(map(str, self.paths))) or "no file"
        cut_off = " (cut off)" if self.unfinished else ""
        return clean(f"<Run {files}{cut_off}: {counted(self.records)}>")

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of all runs."""
        return tuple(record for records in self.by_file for record in records)

    @property
    def judged(self) -> list[Judged]:
        """The records with their verdicts. Each run is judged alone, so adding runs changes no verdict."""
        return [one for judged in self.judged_by_file for one in judged]

    @property
    def judged_by_file(self) -> list[list[Judged]]:
        """For each run its records, judged, with what plugins add."""

        judged = judge_all([manifest.run_id for manifest in self.manifests], self.by_file, self.metrics)
        return [
            [replace(one, device_kind=device_kind(head.environment, one.record.case)) for one in those]
            for head, those in zip(self.manifests, judged, strict=True)
        ]

    @property
    def path(self) -> Path:
        """The file of the first run."""
        return self.paths[0]

    @property
    def frame(self) -> pd.DataFrame:
        """A tidy frame: a row for each case and backend, columns as in ``attnbench run --format json``.

        Times are in ms; ``verdict`` is missing where there is no ratio to judge.
        """
        from attnbench.reports.columns import frame

        return frame(self.judged, [column.entry.record.name for column in self.metrics])

    @property
    def reports(self) -> list[list[Part]]:
        """The reports on the runs, as tables and the page show them.

        Runs on several kinds of device, and shards of one selection, have one report with a part for each
        kind. Other runs have a report each, with one part.
        """
        kinds: dict[str, dict[int, list[Judged]]] = {}
        judged = self.judged_by_file
        for run, those in enumerate(judged):
            for one in those:
                kinds.setdefault(one.device_kind, {}).setdefault(run, []).append(one)
        shards = {(head.shard.of, *head.shard.cases) if head.shard else None for head in self.manifests}
        together = len(kinds) > 1 or (len(shards) == len(kinds) == 1 and None not in shards)
        if together and not any(head.sides for head in self.manifests):
            return [[self._part(kind, kinds[kind]) for kind in sorted(kinds)]]
        kind = next(iter(kinds)) if len(kinds) == 1 else ""
        return [[self._part(kind, {run: those})] for run, those in enumerate(judged)]

    def _part(self, kind: str, judged: Mapping[int, Sequence[Judged]]) -> Part:
        """Put the outcomes of runs on one kind of device together.

        Of a case in several runs the last counts, and of these one that was not interrupted. A shard has no
        total of a step, which needs all cases.
        """
        runs = sorted(judged, key=lambda run: self.manifests[run].started)
        heads = [self.manifests[run] for run in runs]
        every = [(run, one) for run in runs for one in judged[run]]
        last = {one.record.case: run for run, one in every}
        last |= {one.record.case: run for run, one in every if one.record.status != "interrupted"}
        selected = [case for head in heads for case in (head.shard.cases if head.shard else head.cases)]
        places = {case: place for place, case in enumerate(dict.fromkeys(selected))}
        kept = sorted(
            (one for run, one in every if last[one.record.case] == run),
            key=lambda one: places[one.record.case],
        )
        found = None
        if not any(head.sides for head in heads):
            taken = [one for run in runs if self.times for one in self.times[run] if last.get(one[0]) == run]
            lacks = any(case not in last for head in heads if head.shard for case in head.shard.cases)
            counts = {} if lacks else {case: count for head in heads for case, count in head.counts.items()}
            found = answer([one.record for one in kept], taken, counts)
        again = len({(run, one.record.case) for run, one in every}) - len(last)
        torch = dict.fromkeys(str(head.environment.get("torch") or "") for head in heads)
        return Part(kept, found, kind, tuple(runs), again, " and ".join(filter(None, torch)))

    @property
    def parts(self) -> list[Part]:
        """The parts of all reports."""
        return [part for parts in self.reports for part in parts]

    def head_of(self, part: Part) -> str:
        """Return a line that names the file of a part, and when and where it was measured."""
        head = self.manifests[part.runs[0]]
        return f"{self.paths[part.runs[0]]}: {head.started}, {head.environment.get('cpu')}"

    @property
    def answers(self) -> list[Answer | None]:
        """For each part of the reports the fastest backends and the means; None for a live comparison."""
        return [part.answer for part in self.parts]

    @property
    def summary_rows(self) -> list[dict[str, Any]]:
        """The rows of :attr:`summary`, as ``--summary --format json`` prints them."""
        from attnbench.reports.answer import summary_rows

        return [row for part in self.parts for row in summary_rows(part)]

    @property
    def summary(self) -> pd.DataFrame:
        """The answer as a frame: the fastest backend of each case, then each backend over the common cases.

        The column ``kind`` is ``case`` or ``backend``. ``ratio`` is the ratio of the fastest backend, or the
        geometric mean of a backend's ratios, with an interval over repetitions. Times are in ms.
        """
        from attnbench.reports.answer import summary_frame

        return summary_frame(self.summary_rows)

    @property
    def exit_code(self) -> int:
        """The exit status of the command: 0 fine, 1 a check failed, 3 something could not be measured."""
        # A backend may be good for cases of other shards alone.
        whole = [manifest for manifest in self.manifests if manifest.shard is None]
        named = {name for manifest in whole for name in manifest.named}
        return exit_code(self.records, named)
