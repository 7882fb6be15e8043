"""What a plugin can bring besides rules and backends: suites, metrics, reporters, facts, verdict rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from attnbench.types.case import Case

if TYPE_CHECKING:
    from attnbench.types.record import Record


class Source(Struct, frozen=True):
    """A plugin that can be loaded, and who brings it.

    name: what it's called: that of its entry point, or of its file. module: what to import. distribution,
    version: who brings it; of a file its name and the first digits of its SHA-256. path: of the file to load
    as ``module``; "" for what is importable.
    """

    name: str
    module: str
    distribution: str
    version: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"


@dataclass(frozen=True)
class Suite:
    """A named list of cases.

    summary: one line for ``attnbench list suites``. cases: in the order they are run.
    check_only: cases that are not worth timing: ``run`` refuses the suite, ``check`` takes it.
    compiled: ids' positions of the cases on which compiling backends run; None for all.
    """

    name: str
    summary: str
    cases: tuple[Case, ...]
    check_only: bool = False
    compiled: frozenset[int] | None = None


MetricValue = Callable[["Record", Case], float | None]
"""Gives the number of a record of a case; None where there is none."""


@dataclass(frozen=True)
class Metric:
    """A column that a plugin adds to tables, JSON, CSV and frames.

    name: of the column in JSON, CSV and frames. summary: what it says, one line; it stands under the table.
    head: of the column in tables, with the unit: ``nJ/call``.
    value: ``value(record, case)`` gives the number, or None for an empty cell. It is asked of records whose
    status is ``ok`` or ``suspect``; of those that were checked alone ``median_ms`` is None.
    digits: how many tables show; as of any number without an interval, two. JSON, CSV and frames have all.
    """

    name: str
    summary: str
    head: str
    value: MetricValue
    digits: int = 2


Rows = Sequence[Mapping[str, Any]]
RunFacts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Reporter:
    """A format for the records of runs, chosen by ``--format NAME``.

    name: the word for --format. summary: what it makes, one line.
    render: ``render(rows, runs)`` gives the text to print. rows: of all records in order, each the object
    that ``--format json`` prints; ``run`` is the ``run_id`` of its run. runs: what else is known of each:
    what its file begins with (``run_id``, ``started``, ``command``, ``protocol``, ``plugins``,
    ``environment``, …), its ``path``, and whether all runs of that are ``finished``.
    """

    name: str
    summary: str
    render: Callable[[Rows, RunFacts], str]


FactValue = str | int | float | bool | None


@dataclass(frozen=True)
class EnvironmentFact:
    """A fact that every run file states, and that ``attnbench compare`` shows where two sides differ in it.

    name: what it's called. summary: what it says, one line.
    read: gives it, None where it isn't known. It is called once in each run, by the process that starts it,
    before anything is measured; so it must be quick and import nothing heavy.
    """

    name: str
    summary: str
    read: Callable[[], FactValue]


Word = Literal["faster", "slower", "same", "unclear"]
WORDS: tuple[Word, ...] = get_args(Word)

SampleSets = Sequence[Sequence[float]]
"""Times per call in nanoseconds, a sequence for each set (a fresh process), in the order measured."""


@dataclass(frozen=True)
class VerdictRule:
    """A rule that the self-test scores beside ours, on the same samples.

    name: how it's called. summary: what it does, one line, with the tool whose rule it is.
    decide: ``decide(contender, baseline)`` says what the contender is against the baseline.
    """

    name: str
    summary: str
    decide: Callable[[SampleSets, SampleSets], Word]
