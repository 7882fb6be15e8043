"""What a page shows of a run: records with their verdicts, who leads each case, the machine's limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnbench.compare.limit import Limit, limits
from attnbench.reports.html.leads import Lead, leads
from attnbench.reports.judged import Judged, judge
from attnbench.runner.run_file import StoredRun
from attnbench.types.record import EndLine, Manifest, Record, SetLine
from attnbench.types.verdict import Word


@dataclass(frozen=True)
class Work:
    """What one call of a case is: floating-point operations, bytes moved, and the machine beside it.

    limit: None where the scale was not measured.
    """

    flops: float
    bytes_moved: float
    limit: Limit | None


@dataclass(frozen=True)
class Shown:
    """One run, as it stands on a page.

    number: its place among the runs of the page, from 1. judged: its records with verdicts, in their order.
    leads: who is the fastest of each case. work: by case, of those that were planned. ended: None where the
    run was cut off.
    """

    number: int
    path: Path
    manifest: Manifest
    judged: tuple[Judged, ...]
    leads: tuple[Lead, ...]
    work: dict[str, Work]
    ended: EndLine | None

    @property
    def records(self) -> list[Record]:
        """The records without their verdicts."""
        return [one.record for one in self.judged]

    @property
    def machine(self) -> str:
        """What the run was measured on, in a few words: CUDA devices where a case is on one, else its CPU.

        "" where the file doesn't say.
        """
        environment = self.manifest.environment
        devices = environment.get("cuda_devices")
        if isinstance(devices, list) and any("cuda" in case.split("/") for case in self.manifest.cases):
            return ", ".join(str(device) for device in dict.fromkeys(devices))
        return str(environment.get("cpu") or "")

    @property
    def torch(self) -> str:
        """Its version of torch; "" where the file doesn't say, or each side of a comparison has its own."""
        return "" if self.manifest.sides else str(self.manifest.environment.get("torch") or "")

    @property
    def foremost(self) -> Word:
        """The verdict that is told first: of a live comparison, whether something became slower."""
        return "slower" if self.manifest.sides else "faster"

    @property
    def missing(self) -> int:
        """How many outcomes a run that was cut off has not got to."""
        whole = len(self.manifest.cases) * len(self.manifest.backends)
        return 0 if self.ended is not None else max(0, whole - len(self.judged))


def shown(runs: Sequence[StoredRun], judged: Sequence[Sequence[Judged]] | None = None) -> tuple[Shown, ...]:
    """Stored runs as a page shows them. Each is judged by itself: none is held against another.

    judged: for each run its records, judged, with what plugins add; without that unless said.
    """
    if judged is None:
        judged = [judge(run.records, run.manifest.run_id) for run in runs]
    return tuple(
        _one(number, run, of_it)
        for number, (run, of_it) in enumerate(zip(runs, judged, strict=True), start=1)
    )


def _one(number: int, run: StoredRun, judged: Sequence[Judged]) -> Shown:
    sets: dict[str, list[SetLine]] = defaultdict(list)
    for line in run.sets:
        sets[line.case].append(line)
    work = {line.case: Work(line.flops, line.bytes_moved, limits(sets[line.case])) for line in run.cases}
    return Shown(
        number=number,
        path=run.path,
        manifest=run.manifest,
        judged=tuple(judged),
        leads=tuple(leads(run.records, sets)),
        work=work,
        ended=run.finished,
    )
