"""The records of runs, for reports: with verdicts, as a frame, and as an exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.types.device import device_kind, shown_kinds
from attnbench.types.exit_status import worst
from attnbench.types.record import Manifest, Record
from attnbench.types.status import MEANING, status_words
from attnbench.types.words import clean, count_of

if TYPE_CHECKING:
    import pandas as pd

    from attnbench.reports.judged import JudgedRecord, MetricColumn, ReportPart
    from attnbench.stats.answer import RunAnswer
    from attnbench.stats.caches import CacheStep


def _asked_by_name(head: Manifest) -> frozenset[str]:
    """Return the backends of a run that asked no others; none where it asked all."""
    named = frozenset(head.named)
    return named if named.issuperset(head.backends) else frozenset()


def exit_code(records: Iterable[Record], named: Collection[str] = ()) -> int:
    """Return the exit status of a run (:data:`attnbench.types.exit_status.EXIT_STATUS`).

    ``unsupported``, ``unavailable`` and ``suspect`` are fine, and ``inaccurate`` as declared. But a backend
    that the user asked for by name (``named``) must pass on at least one case, unless it is not known whether
    it does.
    """
    records = tuple(records)
    codes = [MEANING[record.status].exit_code for record in records if not record.passed]
    may_pass = {record.backend for record in records if record.passed or MEANING[record.status].unknown}
    return worst([*codes, *(3 for name in named if name not in may_pass)])


def without_success(records: Iterable[Record], named: Iterable[str]) -> list[str]:
    """Return a sentence for each named backend that succeeded on no case and failed on none.

    No record of it shows a failure, but nothing is known of it.
    """
    records, found = tuple(records), []
    for name in named:
        own = [record for record in records if record.backend == name]
        if not any(record.passed or MEANING[record.status].exit_code for record in own):
            whys = [f"{status_words(one.status)}: {one.reason}" for one in own] or ["it had none to run"]
            usual, times = Counter(whys).most_common(1)[0]
            often = f" ({times} of {count_of(len(own), 'case')})" if len(own) > 1 else ""
            found.append(f"{name} succeeded on no case: {usual}{often}")
    return found


_WIDTH = 100
"""The width of a run that is printed, where no terminal says another."""


_MOST_BROUGHT = 3
"""Of more named backends beside a plugin nobody can tell which the user means."""


def _brought(head: Manifest) -> tuple[str, ...]:
    """Return the backends that a run names, if it names a plugin too: the user's own are among them."""
    by_plugin = any(word.partition("=")[0] in ("--plugin", "-p") for word in head.command)
    return tuple(head.named) if by_plugin and len(head.named) <= _MOST_BROUGHT else ()


@dataclass(frozen=True, repr=False)
class Run:
    """One run, or several read together.

    paths: the file of each run, the same for runs of a merged file. manifests: one for each run. by_file: for
    each run its records, one for each case and backend. unfinished: the files with a run that was cut off,
    or still goes on. metrics: the columns that plugins add. times: for each run its repetitions in short: the
    case, the number of the repetition, and the median time of a call of each backend. flaws: what stored runs
    lack, in words. going: of the unfinished files those whose run still goes on. summaries: by name, what the
    backends do that are here, one line each.
    """

    paths: tuple[Path, ...]
    manifests: tuple[Manifest, ...]
    by_file: tuple[tuple[Record, ...], ...]
    unfinished: tuple[Path, ...] = ()
    metrics: tuple[MetricColumn, ...] = ()
    times: tuple[tuple[tuple[str, int, Mapping[str, float]], ...], ...] = ()
    flaws: tuple[str, ...] = ()
    going: tuple[Path, ...] = ()
    summaries: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line for a notebook: the files, and a count of the records by status."""
        from attnbench.reports.overview import counted

        files = ", ".join(dict.fromkeys(map(str, self.paths))) or "no file"
        cut_off = " (cut off)" if self.unfinished else ""
        cut_off = " (still going)" if self.going else cut_off
        return clean(f"<Run {files}{cut_off}: {counted(self.records)}>")

    def __str__(self) -> str:
        """The answer as text, as ``attnbench report`` prints it, for ``print(run)``."""
        from attnbench.reports.render import render_run
        from attnbench.reports.table import View

        return render_run(self, "table", View(width=_WIDTH)).rstrip("\n")

    def _repr_html_(self) -> str:
        """The answer, for a notebook: what to use in each case, and a map of all backends."""
        from attnbench.reports.html.notebook import notebook_html

        return notebook_html(self)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of all runs."""
        return tuple(record for records in self.by_file for record in records)

    @property
    def judged(self) -> list[JudgedRecord]:
        """The records with their verdicts. Each run is judged alone, so adding runs changes no verdict."""
        return [one for judged in self.judged_by_file for one in judged]

    @property
    def judged_by_file(self) -> list[list[JudgedRecord]]:
        """For each run its records, judged, with what plugins add."""
        from attnbench.reports.judged import judge_all

        judged = judge_all([manifest.run_id for manifest in self.manifests], self.by_file, self.metrics)
        found = [
            [replace(one, device_kind=device_kind(head.environment, one.record.case)) for one in those]
            for head, those in zip(self.manifests, judged, strict=True)
        ]
        names = shown_kinds(one.device_kind for those in found for one in those)
        return [[replace(one, device_kind=names[one.device_kind]) for one in those] for those in found]

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
    def reports(self) -> list[list[ReportPart]]:
        """The reports on the runs, as tables and the page show them.

        Runs on several kinds of device, and shards of one selection, have one report with a part for each
        kind. Other runs have a report each, with one part; so have the parts of a run that went on under
        other conditions on one kind of device.
        """
        kinds: dict[str, dict[int, list[JudgedRecord]]] = {}
        judged = self.judged_by_file
        for run, those in enumerate(judged):
            for one in those:
                kinds.setdefault(one.device_kind, {}).setdefault(run, []).append(one)
        shards = {(head.shard.of, *head.shard.cases) if head.shard else None for head in self.manifests}
        together = len(kinds) > 1 or (len(shards) == len(kinds) == 1 and None not in shards)
        before = {head.run_id: run for run, head in enumerate(self.manifests)}
        for run, head in enumerate(self.manifests):
            # A run that went on with other software on the same kind of device has parts of its own.
            if any({run, before.get(head.continues)} <= runs.keys() for runs in kinds.values()):
                together = False
        if together and not any(head.sides for head in self.manifests):
            return [[self._part(kind, kinds[kind], together=True) for kind in sorted(kinds)]]
        kind = next(iter(kinds)) if len(kinds) == 1 else ""
        return [[self._part(kind, {run: those})] for run, those in enumerate(judged)]

    def _part(
        self, kind: str, judged: Mapping[int, Sequence[JudgedRecord]], *, together: bool = False
    ) -> ReportPart:
        """Put the outcomes of runs on one kind of device together. together: all runs have one report.

        Of a case in several runs the last counts, and of these one that was not interrupted. A shard has no
        total of a step, which needs all cases.
        """
        from attnbench.reports.judged import ReportPart
        from attnbench.reports.names import suite_of, suites_apart
        from attnbench.runner.processor import largest_cache_bytes
        from attnbench.stats.answer import answer
        from attnbench.stats.caches import cache_steps, stages_of_one_cache
        from attnbench.timing.allocator import UNKNOWN_CACHE_BYTES

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
        caches: tuple[CacheStep, ...] = ()
        if not any(head.sides for head in heads):
            taken = [one for run in runs if self.times for one in self.times[run] if last.get(one[0]) == run]
            lacks = any(case not in last for head in heads if head.shard for case in head.shard.cases)
            counts = {} if lacks else {case: count for head in heads for case, count in head.counts.items()}
            stages = {case: stage for head in heads for case, stage in head.stages.items()}
            without = (
                tuple(dict.fromkeys(words for head in heads for words in head.without)) if counts else ()
            )
            records = [one.record for one in kept]
            brought = tuple(dict.fromkeys(name for head in heads for name in _brought(head)))
            suites = {case: suite_of(self.manifests[run]) for case, run in last.items()}
            counted = stages_of_one_cache(counts, stages)
            found = answer(records, taken, counted, stages, without, brought, suites)
            caches = cache_steps(records, found.chosen, taken, counts, stages, without)
        again = len({(run, one.record.case) for run, one in every}) - len(last)
        torch = dict.fromkeys(str(head.environment.get("torch") or "") for head in heads)
        asked = {name for head in heads for name in head.backends}
        left_out = dict.fromkeys(name for head in heads for name in head.not_asked)
        if any(map(_asked_by_name, heads)):
            forms = {self._form(run, one.record.case) for run, one in every}
            left_out |= dict.fromkeys(
                record.backend
                for run, records in enumerate(self.by_file)
                for record in records
                if record.status == "ok" and self._form(run, record.case) in forms
            )
        cache_bytes = (largest_cache_bytes(str(head.environment.get("cpu_details") or "")) for head in heads)
        return ReportPart(
            kept, found, kind, tuple(runs), again, " and ".join(filter(None, torch)), caches,
            tuple(name for name in left_out if name not in asked),
            max(filter(None, cache_bytes), default=UNKNOWN_CACHE_BYTES),
            any(head.protocol.get("allocator_pinned", True) for head in heads),
            suites_apart(
                {one.record.case: self.manifests[last[one.record.case]] for one in kept},
                self.manifests if together else (),
            ),
            self._asked(last),
        )  # fmt: skip

    def _form(self, run: int, case: str) -> tuple[str, str, str, str]:
        """Return what a backend must take to be asked for a case of a run, and the kind of device."""
        from attnbench.cases.ids import parse_case
        from attnbench.types.encoding import encoding_name

        one = parse_case(case)
        kind = device_kind(self.manifests[run].environment, case)
        return kind, one.operation, one.storage, encoding_name(one)

    def _asked(self, last: Mapping[str, int]) -> dict[str, frozenset[str]]:
        """Return for each case which backends its run asked by name; empty if all runs asked the same.

        Beside a run of all backends, what to use in another contradicts it if the fastest was not asked.
        last: the run of each case.
        """
        if len({frozenset(head.named) for head in self.manifests}) == 1:
            return {}
        named = {case: _asked_by_name(self.manifests[run]) for case, run in last.items()}
        return {case: names for case, names in named.items() if names}

    @property
    def parts(self) -> list[ReportPart]:
        """The parts of all reports."""
        return [part for parts in self.reports for part in parts]

    def head_of(self, part: ReportPart) -> str:
        """Return a line that names the file of a part, and when it was measured."""
        return f"{self.paths[part.runs[0]]}: {self.manifests[part.runs[0]].started}"

    @property
    def answers(self) -> list[RunAnswer | None]:
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

        The column ``kind`` is ``case``, ``backend``, ``step`` or ``cache``. ``ratio`` is the ratio of the
        fastest backend, or the geometric mean of a backend's ratios, with an interval over repetitions. Times
        are in ms.
        """
        from attnbench.reports.answer import summary_frame

        return summary_frame(self.summary_rows)

    @property
    def exit_code(self) -> int:
        """The exit status of the command that made the run."""
        return exit_code(self.records, self.named)

    @property
    def named(self) -> tuple[str, ...]:
        """The backends that the user named."""
        return tuple(dict.fromkeys(name for manifest in self.manifests for name in manifest.named))

    @property
    def without_success(self) -> list[str]:
        """A sentence for each named backend that succeeded on no case, although none of them failed."""
        return without_success(self.records, self.named)
