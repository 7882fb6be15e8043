"""A comparison of two sides: their names, what each measured, and what is said of a cell and of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from attnbench.types.status import Status

BASE, HEAD = "base", "head"
SIDES = (BASE, HEAD)


def sided(backend: str, side: str) -> str:
    """What a backend on a side is called as a contender, ``eager@head``; its own name where there is none."""
    return f"{backend}@{side}" if side else backend


def parts_of(contender: str) -> tuple[str, str]:
    """The backend and the side of a contender; the side is "" in runs that have none."""
    backend, _, side = contender.partition("@")
    return backend, side


def baseline_of(contender: str, baseline: str) -> str:
    """Whom the ratio of a contender refers to: on a side, to the same backend on the base side."""
    backend, side = parts_of(contender)
    return sided(backend, BASE) if side else baseline


Origin = Literal["attnbench", "pytest-benchmark"]


@dataclass(frozen=True)
class Cell:
    """A backend on a case, as one run measured it.

    case: its id, or a benchmark's name where it is no case of ours. rule, backend: "" where unknown.
    status, reason: as in a record. processes_ns: the median time per call of each process that was timed, in
    the order measured; a process is what draws its luck anew, so these are the values that count as
    independent. Of ours these are sets; a file of pytest-benchmark has one. calls_ns: of a lone process, its
    quartiles and extremes (least, lower, middle, upper, most), () where unknown. reference_ns: what the
    machine's own reference calls took in each of those processes' sets, by name (``gemm_1024``, ``copy``,
    ``empty``). fingerprint: what the case means (counts of pairs, operations and bytes), "" where unknown.
    parents: for each of those processes the number of the one that it was forked from, whose luck it shares;
    () where unknown. ratio: time over that of the run's own baseline, from pairs taken next to each other, as
    the run's record has it; None where there is none.
    """

    case: str
    rule: str
    backend: str
    status: Status
    reason: str = ""
    processes_ns: tuple[float, ...] = ()
    calls_ns: tuple[float, ...] = ()
    reference_ns: dict[str, tuple[float, ...]] = field(default_factory=dict)
    fingerprint: str = ""
    parents: tuple[int, ...] = ()
    ratio: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What makes two cells the same: case and backend."""
        return self.case, self.backend


@dataclass(frozen=True)
class Measured:
    """One stored run: a file, or a part of one that holds several.

    origin: who measured. started: as the file says it, sortable. commit: of the code in the working folder,
    "" where unknown.
    environment: facts of machine and software under our names (``cpu``, ``python``, ``torch``, …), flat.
    protocol: dials of the measurement. version: of the format. problems: what a reader of a comparison must
    know, one sentence each: cut off, made under force, and so on. run_id: what tells copies of one run from
    others, "" where a file has none.
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


Outcome = Literal["slower", "mismatch", "missing", "unclear", "same", "faster", "none"]
"""Verdicts on a cell, the worst first. mismatch: its output is wrong on the new side. missing: it has a time
on one side at most, though it should have two. none: there is nothing to compare it with: it has a time on
neither side, or is new."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

FAILING: tuple[Outcome, ...] = ("slower", "mismatch", "missing", "unclear")
"""Outcomes that a gate may fail on."""


@dataclass(frozen=True)
class ComparedCell:
    """A backend on a case, on two sides.

    base_status, new_status: None where the side doesn't have it. base_ms, new_ms: median over processes of
    their median time per call. ratio: new over base; low, high: its interval at ``confidence``; below 1 is
    faster. p_value: that there is no difference; p_adjusted: among all cells (Benjamini and Hochberg).
    delta: the least effect that counted; least_told: the smallest effect that a verdict could rest on, delta
    or what processes and reference calls differ by. reason: why, in words, where the verdict isn't plain.
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
    least_told: float | None = None


@dataclass(frozen=True)
class Difference:
    """A fact of the environment that the sides don't have alike. matters: whether times can't be compared."""

    fact: str
    base: str
    new: str
    matters: bool


@dataclass(frozen=True)
class Compared:
    """A whole comparison.

    base, new: how the sides are called. differences: of their environments, those that matter first. forced:
    whether some were overridden by the user. warnings: what else a reader must know, one sentence each; a
    strict gate fails on any. conventions: what ratios and verdicts mean here, one sentence each.
    """

    base: str
    new: str
    cells: tuple[ComparedCell, ...]
    differences: tuple[Difference, ...] = ()
    forced: bool = False
    warnings: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
