"""Further records of plugins: suites, metrics, reporters, environment facts, verdict rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from attnbench.types.case import Case

if TYPE_CHECKING:
    from attnbench.types.record import Record


class Source(Struct, frozen=True):
    """A plugin that can be loaded, and its distribution.

    name: of its entry point or of its file. module: to import. distribution, version: of the package; of a
    file its name and the first digits of its SHA-256. path: of the file to load as ``module``; "" for an
    importable module.
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

    summary: one line for ``attnbench list suites``. cases: in the order of a run. check_only: the cases are
    not worth timing; ``run`` refuses the suite, ``check`` takes it. compiled: positions of the cases on which
    compiling backends run; None for all. counts: for each case, how many calls one step of a model or program
    makes; None where nobody counted. stages: for each case, the part of a step that its count is of, as
    ``decode``; counts of unlike stages are not summed. without: in words, what a
    step computes too and no case says, as ``10 short convolution layers``; totals name it. share: the part of
    a program's time that the counted calls take, where it was recorded. baseline: the backend that ratios
    refer to unless the user names one; None for the usual one.
    """

    name: str
    summary: str
    cases: tuple[Case, ...]
    check_only: bool = False
    compiled: frozenset[int] | None = None
    counts: tuple[float, ...] | None = None
    stages: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    share: float | None = None
    baseline: str | None = None


MetricValue = Callable[["Record", Case], float | None]
"""Returns the number of a record of a case; None where there is none."""


@dataclass(frozen=True)
class Metric:
    """A column that a plugin adds to tables, JSON, CSV and frames.

    name: of the column in JSON, CSV and frames. summary: one line that explains it under the table with
    ``--legend``. head: of the column in tables, with the unit: ``nJ/call``. value: ``value(record,
    case)`` gives the number, or None for an empty cell. It is called with records whose status is ``ok``,
    ``inaccurate`` or ``suspect``; after a check without timing ``median_ms`` is None. digits: shown in
    tables; JSON, CSV and frames have all.
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

    name: the value of --format. summary: what it makes, one line. render: ``render(rows, runs)`` gives the
    text to print. rows: one object for each record in order, as ``--format json`` prints it; ``run`` is the
    ``run_id`` of its run. runs: for each run the head of its file (``run_id``, ``started``, ``command``,
    ``protocol``, ``plugins``, ``environment``, …), its ``path``, and whether all runs of that file are
    ``finished``.
    """

    name: str
    summary: str
    render: Callable[[Rows, RunFacts], str]


FactValue = str | int | float | bool | None


@dataclass(frozen=True)
class EnvironmentFact:
    """A fact that every run file states, and that ``attnbench compare`` shows where two sides differ in it.

    name, summary: its name, and what it says in one line. read: returns it, None where it is unknown. The
    process that starts a run calls it once, before measuring, so it must be quick and import nothing heavy.
    """

    name: str
    summary: str
    read: Callable[[], FactValue]


Word = Literal["faster", "slower", "same", "unclear"]
WORDS: tuple[Word, ...] = get_args(Word)

SampleSets = Sequence[Sequence[float]]
"""Times per call in nanoseconds: one sequence for each repetition (a new process), in the order measured."""


@dataclass(frozen=True)
class VerdictRule:
    """A rule for verdicts, which the self-test scores beside attnbench's on the same samples.

    name, summary: its name, and in one line what it does and which tool uses it. decide: ``decide(candidate,
    baseline)`` returns the verdict on the candidate against the baseline.
    """

    name: str
    summary: str
    decide: Callable[[SampleSets, SampleSets], Word]
