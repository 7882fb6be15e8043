"""A comparison of two sides: their names, their measurements, and the verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from attnbench.types.status import Status

BASE, HEAD = "base", "head"
SIDES = (BASE, HEAD)


def sided(backend: str, side: str) -> str:
    """Return the name of a backend on a side, ``eager@head``; its own name where there is no side."""
    return f"{backend}@{side}" if side else backend


def parts_of(candidate: str) -> tuple[str, str]:
    """Split a name into backend and side; the side is "" in runs without sides."""
    backend, _, side = candidate.partition("@")
    return backend, side


def baseline_of(candidate: str, baseline: str) -> str:
    """Return the baseline of a name: on a side, the same backend on the base side."""
    backend, side = parts_of(candidate)
    return sided(backend, BASE) if side else baseline


Time = Annotated[float, Meta(gt=0, le=1e18)]
"""A time in seconds or nanoseconds; files that hold what is not a time are refused."""

Origin = Literal["attnbench", "pytest-benchmark"]

VARIABLE = "variable "
"""Before the name of an environment variable among the facts of a run."""
FAR_COPY = "far_copy"
"""The reference call that shows the memory which all cores share."""


@dataclass(frozen=True)
class Cell:
    """A backend on a case, as one run measured it.

    case: its id, or the name of a benchmark of another tool. rule, backend: "" where unknown. status, reason:
    as in a record. processes_ns: the median time per call of each timed process, in the order measured.
    Processes differ by chance, so these count as independent values. In attnbench these are repetitions; a
    file of pytest-benchmark has one. calls_ns: of a single process its quartiles and extremes (least, lower,
    middle, upper, most), () where unknown. reference_ns: times of the machine's reference calls in each
    process, by name (``gemm_1024``, ``copy``). fingerprint: what the case means (counts of pairs,
    operations and bytes), "" where unknown. parents: for each process the number of the one that it was
    forked from, whose chance effects it shares; () where unknown. ratio: time over that of the run's own
    baseline, from neighbouring pairs, as in the record; None where there is none. baseline: the backend of
    that ratio, "" where there is none. in_a_row: the calls of a sample, and the untimed calls before it; ()
    where unknown. memory_bytes: what a call moves of the case and allocates; None where unknown.
    """

    case: str
    rule: str
    backend: str
    status: Status
    reason: str = ""
    processes_ns: tuple[Time, ...] = ()
    calls_ns: tuple[Time, ...] = ()
    reference_ns: dict[str, tuple[Time, ...]] = field(default_factory=dict)
    fingerprint: str = ""
    parents: tuple[int, ...] = ()
    ratio: Time | None = None
    baseline: str = ""
    in_a_row: tuple[int, ...] = ()
    memory_bytes: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Case and backend, which identify a cell."""
        return self.case, self.backend


@dataclass(frozen=True)
class Measured:
    """One stored run: a file, or a part of a file with several runs.

    origin: the tool that measured. started: as in the file, sortable. commit: of the code in the working
    folder, "" where unknown. environment: facts of machine and software under attnbench's names (``cpu``,
    ``python``, ``torch``, …), flat. protocol: settings of the measurement. version: of the format. problems:
    what a reader must know, one sentence each: interrupted, forced, and so on. run_id: shared by copies of
    one run, "" where a file has none.
    """

    path: Path
    origin: Origin
    version: str
    started: str
    commit: str
    environment: dict[str, Any]
    protocol: dict[str, Any]
    cells: tuple[Cell, ...]
    problems: tuple[str, ...] = ()
    run_id: str = ""


Outcome = Literal["slower", "mismatch", "missing", "accepted", "unclear", "same", "faster", "none"]
"""Verdicts on a cell, the worst first. mismatch: its output is wrong on the new side. missing: it should
have a time on both sides but has not. accepted: slower, missing or unclear, and the gate accepts it. none:
there is nothing to compare, because it has a time on neither side or is new."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

FAILING: tuple[Outcome, ...] = ("slower", "mismatch", "missing", "unclear")
"""Outcomes on which a gate may fail."""


@dataclass(frozen=True)
class ComparedCell:
    """A backend on a case, on two sides.

    base_status, new_status: None where the side lacks it. base_ms, new_ms: median over processes of their
    median time per call. ratio: new over base; below 1 is faster. low, high: its interval at ``confidence``.
    p_value: for no difference; p_adjusted: among all cells (Benjamini and Hochberg). delta: the least effect
    that counts. resolution: the smallest effect that a verdict can rest on: delta, or the differences between
    processes or reference calls. reason: why, in words, where the verdict is not obvious. device_kind: of
    both sides; "" where a forced comparison is of two kinds.
    """

    case: str
    rule: str
    backend: str
    verdict: Outcome
    reason: str = ""
    base_status: Status | None = None
    new_status: Status | None = None
    base_ms: float | None = None
    new_ms: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    delta: float = 0.02
    resolution: float | None = None
    device_kind: str = ""
    most_accepted: float | None = None


@dataclass(frozen=True)
class Difference:
    """A fact of the environment in which the sides differ. matters: whether times then can't be compared."""

    fact: str
    base: str
    new: str
    matters: bool


@dataclass(frozen=True)
class Compared:
    """A whole comparison.

    base, new: names of the sides. differences: of their environments, those that matter first. forced:
    whether the user overrode some. warnings: what else a reader must know, one sentence each; a strict gate
    fails on any. conventions: the meaning of ratios and verdicts, one sentence each. left_out: backends
    that a live comparison did not measure, because their code is the same on both sides. named: those that
    the user named for it. measured: where and how long, in words; "" where unknown. advice: on wrong
    outputs, from a close look at them.
    """

    base: str
    new: str
    cells: tuple[ComparedCell, ...]
    differences: tuple[Difference, ...] = ()
    forced: bool = False
    warnings: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    measured: str = ""
    advice: tuple[str, ...] = ()
