"""The self-test of the judge: every animal of the zoo before it, seed by seed."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from attnbench import __version__
from attnbench.plugins.registry import Registry
from attnbench.runner.moment import Progress
from attnbench.runner.run_file import read_run
from attnbench.selftest.judge_plan import BRIEF, FULL, Extent, plan
from attnbench.selftest.judge_runs import outcomes_of
from attnbench.selftest.kills import Judged, Outcome, judged
from attnbench.selftest.zoo import ANIMALS
from attnbench.types.errors import BadFile

SECONDS = {FULL: 155.0, BRIEF: 40.0}
"""What a seed takes on two quiet cores."""


@dataclass(frozen=True)
class Hearing:
    """What is judged. seeds: each a selection of cases of its own. without: checks that are left out."""

    extent: Extent
    seeds: tuple[int, ...]
    without: tuple[str, ...] = ()

    @property
    def estimated_s(self) -> float:
        """How long it takes on two quiet cores, about."""
        return SECONDS.get(self.extent, SECONDS[FULL]) * len(self.seeds)


@dataclass(frozen=True)
class Finding:
    """Outcomes, and under what conditions: date, seeds, without, wall_s, cpu, cores, torch, load."""

    outcomes: tuple[Outcome, ...]
    facts: dict[str, Any]

    @property
    def judged(self) -> Judged:
        """Counted."""
        return judged(ANIMALS, self.outcomes)


def hear(hearing: Hearing, found: Registry, folder: Path, progress: Progress | None = None) -> Finding:
    """Have the whole zoo judged.

    Raises:
        MeasuringFailed, Interrupted: as :func:`attnbench.runner.run.start_run`.
    """
    rules = {name: entry.record for name, entry in found.rules.items()}
    began, load = time.monotonic(), os.getloadavg()[0]
    outcomes: list[Outcome] = []
    for seed in hearing.seeds:
        for round_ in plan(ANIMALS, rules, seed, hearing.extent):
            outcomes += outcomes_of(round_, seed, found, folder, hearing.without, progress)
    environment = read_run(next(folder.glob("*.jsonl"))).manifest.environment
    facts = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seeds": list(hearing.seeds),
        "without": list(hearing.without),
        "verdicts": len(outcomes),
        "wall_s": time.monotonic() - began,
        "cpu": environment.get("cpu"),
        "cores": len(environment.get("cpus_allowed", [])),
        "torch": environment.get("torch"),
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    return Finding(tuple(outcomes), facts)


def merged(findings: Sequence[Finding]) -> Finding:
    """Several as one: conditions of the first, seeds and times together."""
    facts = dict(findings[0].facts)
    facts["seeds"] = sorted({seed for each in findings for seed in each.facts["seeds"]})
    facts["without"] = sorted({check for each in findings for check in each.facts["without"]})
    facts["verdicts"] = sum(each.facts["verdicts"] for each in findings)
    facts["wall_s"] = sum(each.facts["wall_s"] for each in findings)
    facts["load_before"] = min(each.facts["load_before"] for each in findings)
    facts["load_after"] = max(each.facts["load_after"] for each in findings)
    return Finding(tuple(outcome for each in findings for outcome in each.outcomes), facts)


def write_finding(path: Path, finding: Finding, verdict: str) -> None:
    """Everything found, as JSON."""
    found = finding.judged
    everything = {
        "selftest": "judge",
        "attnbench": __version__,
        "verdict": verdict,
        "fine": found.fine,
        "facts": finding.facts,
        **asdict(found),
        "outcomes": [asdict(outcome) for outcome in finding.outcomes],
    }
    path.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_finding(path: Path) -> Finding:
    """What :func:`write_finding` wrote; raises :class:`BadFile`."""
    try:
        stored = json.loads(path.read_bytes())
        outcomes = msgspec.convert(stored["outcomes"], tuple[Outcome, ...])
        return Finding(outcomes, dict(stored["facts"]))
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise BadFile(f"{str(path)!r} holds nothing that selftest judge wrote: {failure}") from failure
