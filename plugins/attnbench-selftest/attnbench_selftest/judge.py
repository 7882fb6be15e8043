"""The self-test of the judge: every mutant is checked as any backend is, and the refusals are counted."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnbench import __version__
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.results.format import read_run
from attnbench.runner.forecast import RunPlan
from attnbench.runner.options import CHECK_PARTS, Options
from attnbench.runner.progress import Progress
from attnbench.runner.run import start_run
from attnbench.testing.mistakes.scores import PRECISION
from attnbench.types.extensions import Source
from attnbench.types.record import Record
from attnbench.types.status import MEANING, Status
from attnbench.types.words import count_of
from attnbench_selftest.judge_plan import BRIEF, FULL, Extent, Round, plan
from attnbench_selftest.mutants import MUTANTS
from attnbench_selftest.mutants.mutant import Mutant

SOURCE = Source("mutants", "attnbench_selftest.mutants", "attnbench-selftest", "0.1.0")
"""Loaded by the self-test alone, so that no list shows its backends."""

BASELINE = "right_plain"
REFUSALS = ("mismatch", "suspect")
"""Statuses of a refusal; crashes, errors and timeouts are failures that need no judge."""

COARSE = frozenset(f"wrong_{mistake.name}" for mistake in PRECISION)
"""Mutants that compute attention in a coarser arithmetic. ``inaccurate`` refuses these, and no others."""

SECONDS = {FULL: 155.0, BRIEF: 40.0}
"""The time of a seed on two quiet cores."""


@dataclass(frozen=True)
class Outcome:
    """One record of one mutant. caught: see :func:`caught_by`."""

    mutant: str
    case: str
    seed: int
    timed: bool
    status: Status
    caught: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Kill:
    """The result of one wrong mutant.

    refused: in how many of its ``cases``. failed: cases in which it crashed, raised or was too slow.
    survived: the seeds in which it was asked and not refused. by: the checks, the most frequent first.
    """

    mutant: str
    trait: str
    summary: str
    cases: int
    refused: int
    failed: int
    survived: tuple[int, ...]
    by: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """One check. kills: the wrong mutants that it refused; alone: those that nothing else refused."""

    check: str
    kills: tuple[str, ...]
    alone: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """The counts. unasked: mutants without a case; wronged: refusals of right ones."""

    kills: tuple[Kill, ...]
    checks: tuple[Check, ...]
    right: int
    right_verdicts: int
    wronged: tuple[Outcome, ...]
    unasked: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def survivors(self) -> tuple[Kill, ...]:
        """Wrong ones that were not refused in every seed."""
        return tuple(kill for kill in self.kills if kill.survived)

    @property
    def fine(self) -> bool:
        """All wrong ones refused in every seed, no right one refused, none left out."""
        return not (self.survivors or self.wronged or self.unasked)

    @property
    def last_line(self) -> str:
        """The verdict in one line."""
        wrong, refused = len(self.kills), {one.mutant for one in self.wronged}
        text = (
            f"{wrong - len(self.survivors)} of {wrong} wrong backends refused in "
            f"{count_of(len(self.seeds), 'seed')}, {len(refused)} of {self.right} right ones"
        )
        left = f"; {len(self.unasked)} not asked" if self.unasked else ""
        return f"selftest judge: {'' if self.fine else 'FAILED: '}{text}{left}"


@dataclass(frozen=True)
class Finding:
    """Outcomes, and their conditions: date, seeds, without, wall_s, cpu, cores, torch, load."""

    outcomes: tuple[Outcome, ...]
    facts: dict[str, Any]


def registry() -> Registry:
    """All that is installed, and the mutants."""
    return load_registry([*installed(), SOURCE])


def caught_by(record: Record) -> tuple[str, ...]:
    """The check that refused a record, for each kind of input it failed on; the status where that says it."""
    if record.status == "ok":
        return ()
    check = getattr(record, "failed_check", "") or record.status
    return tuple(f"{check} on {kind}" for kind in record.failed_on) or (check,)


def outcomes_of(
    round_: Round,
    seed: int,
    found: Registry,
    folder: Path,
    without: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run a round; an outcome for every mutant and case that it asks for.

    Raises:
        MeasuringFailed, Interrupted: as :func:`attnbench.runner.run.start_run`.
    """
    # As many repetitions as a run has: a mutant found by half of all drawn changes may pass in fewer. The
    # budget is larger: some mutants are wrong after forty calls, which a slow machine must reach in each
    # process, too.
    options = Options(
        timed=round_.timed,
        budget_s=0.15,
        baseline=BASELINE,
        without=tuple(check for check in CHECK_PARTS if check in without),
    )
    asked = dict(round_.mutants)
    if round_.timed:
        asked = {case: (BASELINE, *names) for case, names in asked.items()}
    names = tuple(dict.fromkeys(name for its in asked.values() for name in its))
    command = ("attnbench", "selftest", "judge")
    stored = start_run(
        RunPlan(round_.cases, names, found, options, asked=asked, command=command), folder, progress
    )
    return [
        Outcome(
            mutant=record.backend,
            case=record.case,
            seed=seed,
            timed=round_.timed,
            status=record.status,
            caught=caught_by(record),
            reason="" if record.status == "ok" else record.reason,
        )
        for record in stored.records
    ]


def judge_mutants(
    extent: Extent,
    seeds: Sequence[int],
    without: Sequence[str],
    folder: Path,
    progress: Progress | None = None,
    device: str = "cpu",
    mutants: Sequence[Mutant] = MUTANTS,
) -> Finding:
    """Have mutants judged on a device, seed by seed.

    Raises:
        MeasuringFailed, Interrupted: as :func:`attnbench.runner.run.start_run`.
    """
    found = registry()
    rules = {name: entry.record for name, entry in found.rules.items()}
    began, load = time.monotonic(), os.getloadavg()[0]
    outcomes: list[Outcome] = []
    for seed in seeds:
        for round_ in plan(mutants, rules, seed, extent, device):
            outcomes += outcomes_of(round_, seed, found, folder, without, progress)
    environment = read_run(next(folder.glob("*.jsonl"))).manifest.environment
    facts = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seeds": list(seeds),
        "without": list(without),
        "verdicts": len(outcomes),
        "wall_s": time.monotonic() - began,
        "cpu": environment.get("cpu"),
        "cores": len(environment.get("cpus_allowed", [])),
        "torch": environment.get("torch"),
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    return Finding(tuple(outcomes), facts)


def count(mutants: Sequence[Mutant], outcomes: Sequence[Outcome]) -> Judged:
    """Count outcomes. A backend that does not support a case was not asked, nor one that was not judged."""
    meanings = {one.status: MEANING[one.status] for one in outcomes}
    asked = [one for one in outcomes if not (meanings[one.status].declined or meanings[one.status].unknown)]
    by_name: dict[str, list[Outcome]] = {mutant.backend_name: [] for mutant in mutants}
    for one in asked:
        by_name.setdefault(one.mutant, []).append(one)
    right = [by_name[mutant.backend_name] for mutant in mutants if mutant.right]
    wrong = [mutant for mutant in mutants if not mutant.right]
    return Judged(
        kills=tuple(_kill(mutant, its) for mutant in wrong if (its := by_name[mutant.backend_name])),
        checks=_checks({mutant.backend_name: by_name[mutant.backend_name] for mutant in wrong}),
        right=sum(map(bool, right)),
        right_verdicts=sum(map(len, right)),
        wronged=tuple(one for its in right for one in its if one.status != "ok"),
        unasked=tuple(mutant.backend_name for mutant in mutants if not by_name[mutant.backend_name]),
        seeds=tuple(sorted({one.seed for one in asked})),
    )


def _kill(mutant: Mutant, its: Sequence[Outcome]) -> Kill:
    refused = [one for one in its if _refuses(one)]
    words = [word for one in refused for word in one.caught]
    return Kill(
        mutant=mutant.backend_name,
        trait=mutant.trait,
        summary=mutant.summary,
        cases=len(its),
        refused=len(refused),
        failed=sum(one.status not in (*REFUSALS, "ok", "inaccurate") for one in its),
        survived=tuple(sorted({one.seed for one in its} - {one.seed for one in refused})),
        by=tuple(sorted(set(words), key=lambda word: (-words.count(word), word))),
    )


def _refuses(one: Outcome) -> bool:
    return one.status in REFUSALS or (one.status == "inaccurate" and one.mutant in COARSE)


def _checks(of_wrong: Mapping[str, Sequence[Outcome]]) -> tuple[Check, ...]:
    caught = {
        name: {word for one in its if _refuses(one) for word in one.caught} for name, its in of_wrong.items()
    }
    checks = []
    for word in sorted(set().union(*caught.values())):
        kills = tuple(name for name, words in caught.items() if word in words)
        checks.append(Check(word, kills, tuple(name for name in kills if caught[name] == {word})))
    return tuple(sorted(checks, key=lambda check: -len(check.kills)))


def finding_text(finding: Finding, found: Judged) -> str:
    """Return everything found, as JSON."""
    everything = {
        "selftest": "judge",
        "attnbench": __version__,
        "verdict": found.last_line,
        "fine": found.fine,
        "facts": finding.facts,
        **asdict(found),
        "outcomes": [asdict(outcome) for outcome in finding.outcomes],
    }
    return json.dumps(everything, indent=1, ensure_ascii=False) + "\n"
