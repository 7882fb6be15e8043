"""The runs of a self-test: made as any run is, read back from their files, with where the time went."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnbench import __version__
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.runner.moment import Progress
from attnbench.runner.options import Options
from attnbench.runner.order import Order
from attnbench.runner.run import start_run
from attnbench.runner.run_file import StoredRun, read_run
from attnbench.selftest.parts import Part
from attnbench.selftest.trials import Trial, dropped, measured_s, trials_of
from attnbench.types.case import Case
from attnbench.types.errors import Interrupted, MeasuringFailed
from attnbench.types.source import Source

CONTENDERS = Source("selftest", "attnbench.selftest.contenders", "attnbench", __version__)
"""Loaded by the self-test alone, so that no list shows its backends."""

SWITCHES: Mapping[str, Mapping[str, bool]] = {
    "pinning": {"pinned": False},
    "put-first": {"put_first": False},
    "fork-order": {"shuffled": False},
    "balance": {"balanced": False},
    "allocator": {"allocator_pinned": False},
    "lockstep": {"lockstep": False},
    "preemption": {},
}
"""Parts of the protocol that can be left out, with the options that do so; preemption is left to scoring."""


def registry() -> Registry:
    """All that is installed, and the self-test's own contenders."""
    return load_registry([*installed(), CONTENDERS])


@dataclass
class Session:
    """The runs of one command. folder: where their files go. without: parts of the protocol left out.

    interrupted: by Ctrl-C; nothing more is measured then. runs: those made, with their wall times.
    """

    folder: Path
    registry: Registry
    without: Sequence[str] = ()
    progress: Progress | None = None
    interrupted: bool = False
    runs: list[StoredRun] = field(default_factory=list)
    wall_s: float = 0.0
    load_before: tuple[float, float, float] = field(default_factory=os.getloadavg)

    def run(
        self, cases: Sequence[Case], contenders: Sequence[str], *, budget_s: float, sets: int
    ) -> StoredRun | None:
        """Measure contenders, the baseline first; None once the user has stopped.

        Raises:
            MeasuringFailed: nothing could be measured.
        """
        if self.interrupted:
            return None
        changes: dict[str, Any] = {
            name: value for part in self.without for name, value in SWITCHES[part].items()
        }
        # What is asked is of the clock, also on cases too small to tell right from wrong.
        options = Options(
            budget_s=budget_s, sets=sets, baseline=contenders[0], without=("canaries",), **changes
        )
        order = Order(tuple(cases), tuple(contenders), command=("attnbench", "selftest"))
        start = time.monotonic()
        try:
            path = start_run(order, self.registry, options, self.folder, self.progress)
        except Interrupted as stop:
            self.interrupted = True
            path = stop.path
        self.wall_s += time.monotonic() - start
        stored = read_run(path)
        self.runs.append(stored)
        if not stored.sets and not self.interrupted:
            raise MeasuringFailed(_why_nothing(stored))
        return stored

    def trials(self, part: Part) -> list[Trial]:
        """Measure a part; gives its trials, fewer of them where the user stopped."""
        stored = self.run(
            part.cases,
            part.contenders,
            budget_s=part.budget_s * part.together,
            sets=part.sets * part.together,
        )
        return [] if stored is None else trials_of(stored.sets, part.sets)

    def notes(self) -> tuple[str, ...]:
        """What went wrong with contenders, in words."""
        failed = {
            f"{record.backend} on {record.case}: {record.status}: {record.reason}"
            for run in self.runs
            for record in run.records
            if record.status not in ("ok", "suspect")
        }
        failed |= {f"{name}: {why}" for run in self.runs for name, why in dropped(run.sets).items()}
        return tuple(sorted(failed))

    def facts(self) -> dict[str, Any]:
        """Where the time went, and the machine's state."""
        measuring_s = sum(sum(measured_s(run.sets).values()) for run in self.runs)
        phases: dict[str, float] = {}
        for run in self.runs:
            for phase, spent_s in (run.finished.phases_s if run.finished else {}).items():
                phases[phase] = phases.get(phase, 0.0) + spent_s
        return {
            "wall_s": self.wall_s,
            "measuring_s": measuring_s,
            "setup_s": self.wall_s - measuring_s,
            "phases_s": phases,
            "load_before": list(self.load_before),
            "load_after": list(os.getloadavg()),
            "environment": self.runs[0].manifest.environment if self.runs else {},
            "files": [str(run.path) for run in self.runs],
        }


def _why_nothing(stored: StoredRun) -> str:
    reasons = sorted({f"{record.status}: {record.reason}" for record in stored.records})
    return f"nothing could be measured: {'; '.join(reasons) or 'no contender took part in a set'}"
