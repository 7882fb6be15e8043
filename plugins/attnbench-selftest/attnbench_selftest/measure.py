"""The runs of ``aa`` and ``power``: made as any run is, read back from their files, and cut into trials."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.results.format import StoredRun, read_run
from attnbench.runner.forecast import RunPlan
from attnbench.runner.options import Options, repetitions_for
from attnbench.runner.progress import Progress
from attnbench.runner.run import start_run
from attnbench.stats.pairs import compare
from attnbench.types.errors import Interrupted, MeasuringFailed
from attnbench.types.extensions import SampleSets, Source
from attnbench.types.record import RepetitionLine
from attnbench.types.status import MEANING
from attnbench_selftest.candidates import PROBE, PROBE_ITERATIONS, copies, telling
from attnbench_selftest.plan import Part

CANDIDATES = Source("selftest", "attnbench_selftest.candidates", "attnbench-selftest", "0.1.0")
"""Loaded by the self-test alone, so that no list shows its backends."""

PROBE_BUDGET_S = {16: 1.0, 512: 2.0, 2048: 2.0}
LEAST_SHARE = 0.05
"""The least share of a call that the probe's counting must take: less drowns in the noise of a repetition."""


@dataclass(frozen=True)
class Trial:
    """The repetitions of one measurement of some candidates, which stand for a run. cluster: the case.

    Trials of one case share its inputs; repetitions of several cases may come from the same processes.
    """

    cluster: str
    repetitions: tuple[RepetitionLine, ...]


def trials_of(repetitions: Iterable[RepetitionLine], size: int) -> list[Trial]:
    """Groups of ``size`` consecutive repetitions of a case; an incomplete group at the end is left out."""
    of_cases: dict[str, list[RepetitionLine]] = {}
    for line in repetitions:
        of_cases.setdefault(line.case, []).append(line)
    return [
        Trial(case, tuple(lines[start : start + size]))
        for case, lines in of_cases.items()
        for start in range(0, len(lines) - size + 1, size)
    ]


def samples(repetitions: Iterable[RepetitionLine], backend: str) -> SampleSets:
    """A backend's times per call in ns, by repetition."""
    return [
        [wall / taken.calls for taken in line.samples[backend] for wall in taken.wall_ns]
        for line in repetitions
        if line.samples.get(backend)
    ]


def registry() -> Registry:
    """All that is installed, and the self-test's own candidates."""
    return load_registry([*installed(), CANDIDATES])


@dataclass
class Session:
    """The runs of one command. folder: where their files go. interrupted: by Ctrl-C; no more is measured."""

    folder: Path
    registry: Registry
    progress: Progress | None = None
    interrupted: bool = False
    runs: list[StoredRun] = field(default_factory=list)
    wall_s: float = 0.0
    load_before: tuple[float, float, float] = field(default_factory=os.getloadavg)

    def measure(self, parts: Sequence[Part]) -> dict[Part, list[Trial]]:
        """Measure parts, and before them what planted slowdowns are calibrated by.

        Raises:
            MeasuringFailed: nothing could be measured, or the calibration is too noisy.
        """
        # All before any part: a calibration that fails later would lose what was measured until then.
        probes = dict.fromkeys(_probe_of(part) for part in parts if part.percent and part.device == "cpu")
        known = {probe: self.trials(probe) for probe in probes}
        measured = {}
        for part in parts:
            iterations: dict[int, int] = {}
            if not self.interrupted and _probe_of(part) in known:
                iterations[part.percent] = iterations_for(part.percent, known[_probe_of(part)], part.length)
            with telling(iterations):
                measured[part] = self.trials(part)
        return measured

    def trials(self, part: Part) -> list[Trial]:
        """Measure a part; fewer trials, or none, after Ctrl-C."""
        if self.interrupted:
            return []
        # Trivial answers are left out: timing needs no case that detects errors.
        options = Options(
            budget_s=part.budget_s * part.together,
            repetitions=part.repetitions * part.together,
            baseline=part.candidates[0],
            without=("trivial_answers",),
        )
        plan = RunPlan(part.cases, part.candidates, self.registry, options, command=("attnbench", "selftest"))
        start = time.monotonic()
        try:
            stored = start_run(plan, self.folder, self.progress)
        except Interrupted as stop:
            self.interrupted = True
            stored = read_run(stop.path)
        self.wall_s += time.monotonic() - start
        self.runs.append(stored)
        if not stored.repetitions and not self.interrupted:
            reasons = sorted({f"{record.status}: {record.reason}" for record in stored.records})
            why = "; ".join(reasons) or "no candidate took part in a repetition"
            raise MeasuringFailed(f"nothing could be measured: {why}")
        trials = trials_of(stored.repetitions, part.repetitions)
        if not trials and not self.interrupted:
            raise MeasuringFailed(f"no case has the {part.repetitions} repetitions of a trial")
        return trials

    def failures(self) -> tuple[str, ...]:
        """Candidates that failed, with the reasons."""
        failed = {
            f"{record.backend} on {record.case}: {record.status}: {record.reason}"
            for run in self.runs
            for record in run.records
            if not MEANING[record.status].timed
        }
        for line in (line for run in self.runs for line in run.repetitions):
            failed |= {f"{name}: {one.status}: {one.reason}" for name, one in line.failed.items()}
        return tuple(sorted(failed))

    def facts(self) -> dict[str, Any]:
        """The times of the parts, and the machine's state."""
        samples = (
            b for run in self.runs for line in run.repetitions for of in line.samples.values() for b in of
        )
        measuring_s = sum(sum(taken.wall_ns) for taken in samples) / 1e9
        return {
            "wall_s": self.wall_s,
            "measuring_s": measuring_s,
            "setup_s": self.wall_s - measuring_s,
            "load_before": list(self.load_before),
            "load_after": list(os.getloadavg()),
            "environment": self.runs[0].manifest.environment if self.runs else {},
            "files": [str(run.path) for run in self.runs],
        }


def _probe_of(part: Part) -> Part:
    """The part that measures how far planted slowdowns must count on a length.

    It is a run too: in a run's slots a call is colder than in a loop, whose 3 % came out as 4 %.
    """
    budget_s = PROBE_BUDGET_S[part.length]
    names = (*copies(1), PROBE)
    return replace(
        part,
        candidates=names,
        budget_s=budget_s,
        repetitions=repetitions_for(budget_s),
        trials=1,
        together=1,
        percent=0,
    )


def iterations_for(percent: int, trials: Sequence[Trial], length: int) -> int:
    """How many iterations make a call slower by so much, from the trials of a probe.

    The function around the loop, a tenth of a microsecond, is counted as if it were in proportion: of a call
    of 40 µs that makes 3.2 % of 3.

    Raises:
        MeasuringFailed: the probe was not measured, or is hardly slower than a copy.
    """
    (copy,) = copies(1)
    found = compare([line for trial in trials for line in trial.repetitions], PROBE, copy)
    if found is None:
        raise MeasuringFailed("planted slowdowns could not be calibrated: their probe was not measured")
    share = found.ratio - 1
    if share < LEAST_SHARE:
        raise MeasuringFailed(
            f"planted slowdowns could not be calibrated: {PROBE_ITERATIONS[length]} iterations add "
            f"{share:.1%} to a call; measure when the machine is quieter"
        )
    return round(PROBE_ITERATIONS[length] * percent / 100 / share)


_SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = int(sys.argv[2])
# It looks at its parent now and then, to end when that was killed.
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_cores() -> Iterator[tuple[int, ...]]:
    """Run one spinning process on each core that this process may use; gives their ids.

    They end with the block, and soon after this process if it is killed.
    """
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        for cpu in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-S", "-E", "-c", _SPIN, str(cpu), str(os.getpid())]
            spinners.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        yield tuple(spinner.pid for spinner in spinners)
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()
