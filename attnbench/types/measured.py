"""What a stored run says of one backend on one case, whatever file it stands in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from attnbench.types.record import Status

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
