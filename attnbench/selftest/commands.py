"""The self-tests by name: what each measures, and who scores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from attnbench.runner.options import Options
from attnbench.runner.run_file import StoredRun
from attnbench.selftest.calibration import calibration_part, calibrations, iterations_for, needs_calibration
from attnbench.selftest.experiments import (
    Choices,
    aa_parts,
    coverage_launches,
    exact_parts,
    overhead_parts,
    power_parts,
)
from attnbench.selftest.findings import Scored
from attnbench.selftest.parts import Part, Terms, seconds
from attnbench.selftest.peers import Peers
from attnbench.selftest.planting import telling
from attnbench.selftest.score_aa import score_aa
from attnbench.selftest.score_coverage import score_coverage
from attnbench.selftest.score_exact import score_exact
from attnbench.selftest.score_overhead import score_overhead
from attnbench.selftest.score_power import score_power
from attnbench.selftest.session import Session
from attnbench.selftest.trials import Trial

Plan = Callable[[Choices], tuple[Part, ...]]
Score = Callable[[Mapping[Part, Sequence[Trial]], Terms, Peers], Scored]

TRIALS: Mapping[str, tuple[Plan, Score]] = {
    "aa": (aa_parts, score_aa),
    "exact": (exact_parts, score_exact),
    "power": (power_parts, score_power),
    "overhead": (overhead_parts, score_overhead),
}
"""Those that measure parts, each by its plan, and score their trials. Coverage measures whole launches."""

NAMES = ("aa", "exact", "power", "coverage", "overhead")


def estimated_s(name: str, choices: Choices) -> float:
    """How long a self-test will take, about."""
    if name in TRIALS:
        parts = TRIALS[name][0](choices)
        return seconds([*parts, *calibrations(parts)])
    plan = coverage_launches(choices)
    return seconds([plan.part], plan.launches) + (len(plan.lengths) - 1) * plan.launches * plan.part.seconds


def conduct(name: str, choices: Choices, session: Session, terms: Terms, peers: Peers) -> Scored:
    """Measure and score; what there is, where the user stopped."""
    if name == "coverage":
        return _coverage(choices, session, terms)
    plan, score = TRIALS[name]
    parts = plan(choices)
    # All before any part: a calibration that fails later would take with it what was measured until then.
    known = {part: session.trials(part) for part in calibrations(parts)}
    planted = {} if session.interrupted else {part: _planted(part, known) for part in parts}
    measured = {part: _trials(part, session, planted.get(part, {})) for part in parts}
    return score(measured, terms, peers)


def _planted(part: Part, known: Mapping[Part, Sequence[Trial]]) -> dict[int, int]:
    if not needs_calibration(part):
        return {}
    return {part.percent: iterations_for(part.percent, known[calibration_part(part)], part.length)}


def _trials(part: Part, session: Session, planted: Mapping[int, int]) -> list[Trial]:
    with telling(planted):
        return session.trials(part)


def terms_of(choices: Choices, without: Sequence[str], stress: bool) -> Terms:
    """How to judge what is measured so."""
    said = choices.budget_s is not None or choices.sets is not None
    return Terms(
        delta=Options.delta,
        leave_out="preemption" not in without,
        whole=not without,
        as_planned=not (said or stress or without),
    )


def _coverage(choices: Choices, session: Session, terms: Terms) -> Scored:
    plan = coverage_launches(choices)
    cases = [case for length in plan.lengths for case in replace(plan.part, length=length).cases]
    runs: list[StoredRun] = []
    for _ in range(plan.launches):
        run = session.run(cases, plan.part.contenders, budget_s=plan.part.budget_s, sets=plan.part.sets)
        if run is None:
            break
        runs.append(run)
    return score_coverage(runs, terms)
