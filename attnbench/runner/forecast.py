"""What a run is asked to do, and how long that will take: nothing is started and nothing measured.

The time is an estimate for people who wait. The constants come from runs of the suite ``smoke`` on two shared
cores: from the phases that each run file ends with. A faster machine needs less.
What only a backend's code knows (whether it supports a case) is not asked, so there may be fewer cells.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from attnbench.cases.ids import case_id
from attnbench.cases.memory import free_memory
from attnbench.cases.select import Selection
from attnbench.cases.work import activation_elements, flops, too_large
from attnbench.inputs.kinds import NORMAL, family_draws
from attnbench.ipc.messages import WarmUp
from attnbench.plugins.registry import Registry
from attnbench.runner.case import refusal
from attnbench.runner.machine import allowed_cpus
from attnbench.runner.options import Options
from attnbench.runner.plan import plan_calls
from attnbench.runner.repetitions import WORKER_WARM_UP
from attnbench.stats.protocol import LONG_WORKERS, ORACLE_FLOPS, STRETCHES, TIMED_DRAWS, can_be_forked
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule

START_S = 3.0
"""Before the first case: torch is loaded by a server, plugins by the verifier."""

PREPARE_S = 0.15
"""A template: forked, its plugin loaded, a backend prepared."""

COMPARE_S = 0.01
"""Inputs to a template, its output to the verifier and compared there."""

COMPILE_S = 12.0
"""Preparing a backend that compiles."""

FAMILY_DRAWS = 4
"""Draws of a check besides ordinary ones."""

NEAR_S = 0.1
"""Checking a backend on the case beside a case: a template, some draws on few keys."""

CHILD_S = 0.02
"""A process of a contender for one set: forked, given inputs, its last output compared, ended; warming up is
apart."""

TURN_S = 0.0003
"""A turn beyond its calls: waking the next process; the first calls find others' data in the caches."""

SCALE_S = 0.02
"""The scale of the machine, once a set."""

DRAWN_S, GIVEN_S = 5e-8, 2e-8
"""For each number of the inputs: to draw it, round it and solve with it; to give it to a process, change it
by a law and read it. Of decoding, with much memory and few operations, that is most of the time."""

ORACLE_FLOPS_PER_S = 5e9
FLOPS_PER_S = {"cpu": 3.5e10, "cuda": 2e13}
"""What a contender reaches: on a CPU for each of its threads."""

WIDE_SCORE_SLOWER = 10
"""So much slower are rules that hold several numbers for each pair: memory decides."""

LEAST_CALL_S = 50e-6

_WARM_UP = WarmUp()


def command_line() -> tuple[str, ...]:
    """The command that this process was started with, as people write it: its program has no folder."""
    program = Path(sys.argv[0]).name
    return ("attnbench" if program == "__main__.py" else program, *sys.argv[1:])


@dataclass(frozen=True)
class RunPlan:
    """What a run is asked to do.

    backends: in this order. named: those that the user named, whose refusal is an error to the user.
    compiled_on: ids of the cases on which compiling backends run unless named; None for all.
    asked: by case (its id), the backends that are asked for it where that is not all of them; a run that is
    resumed asks all. command: argv, for the manifest.
    """

    cases: tuple[Case, ...]
    backends: tuple[str, ...]
    registry: Registry
    options: Options
    named: tuple[str, ...] = ()
    compiled_on: frozenset[str] | None = None
    asked: Mapping[str, tuple[str, ...]] | None = None
    command: tuple[str, ...] = field(default_factory=command_line)

    def names(self, case: str) -> tuple[str, ...]:
        """Return the backends that are asked for a case, by its id."""
        return self.backends if self.asked is None else self.asked.get(case, ())

    def left_out(self, case: str) -> frozenset[str]:
        """Return the backends that are left out of a case (its id) because they compile for seconds."""
        if self.compiled_on is None or case in self.compiled_on:
            return frozenset()
        compiling = {name for name in self.backends if self.registry.backends[name].record.compiles}
        return frozenset(compiling - set(self.named))

    @cached_property
    def forecast(self) -> Forecast:
        """The time that this run takes on this machine."""
        return forecast(self, cores=len(allowed_cpus()), free_bytes=free_memory())


def plan_run(selection: Selection, named: Sequence[str], registry: Registry, options: Options) -> RunPlan:
    """Plan a run of selected cases: of the backends that are named, of all where none is.

    Raises:
        BadInput: a backend is not known.
    """
    for name in (*named, options.baseline):
        registry.backend(name)
    on = selection.compiled_on
    return RunPlan(
        cases=selection.cases,
        backends=tuple(named) or tuple(registry.backends),
        registry=registry,
        options=options,
        named=tuple(named),
        compiled_on=None if on is None else frozenset(case_id(case) for case in on),
    )


@dataclass(frozen=True)
class CaseForecast:
    """A case in seconds.

    cells: backends that aren't refused before they are started. timing_s: in turns: timed calls, warm calls
    before them, passing the baton. processes_s: starting a process for each cell and set, and the scale.
    checking_s: the oracle, preparing, comparing outputs, warming up. compiling_s: of backends that compile.
    over_budget: whether the fewest calls already take more than twice the budget.
    """

    case: str
    cells: int
    timing_s: float = 0.0
    processes_s: float = 0.0
    checking_s: float = 0.0
    compiling_s: float = 0.0
    over_budget: bool = False

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.timing_s + self.processes_s + self.checking_s + self.compiling_s


@dataclass(frozen=True)
class Forecast:
    """A run. start_s: before the first case."""

    cases: tuple[CaseForecast, ...]
    start_s: float

    @property
    def cells(self) -> int:
        """Of all cases."""
        return sum(case.cells for case in self.cases)

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.start_s + sum(case.total_s for case in self.cases)


def forecast(plan: RunPlan, *, cores: int, free_bytes: int) -> Forecast:
    """Estimate what a run takes. cores: of this process. free_bytes: of memory."""
    cases = []
    for case in plan.cases:
        rule, without = plan.registry.rule(case.rule), plan.left_out(case_id(case))
        asked = [plan.registry.backends[name].record for name in plan.backends if name not in without]
        backends = [
            backend
            for backend in asked
            if refusal(backend, case, rule, cuda_devices=("cuda",)) is None
            and too_large(case, rule, backend, free_bytes) is None
        ]
        cases.append(_case_forecast(case, rule, backends, plan.options, cores))
    servers = len({case.threads for case in plan.cases} | {1})
    return Forecast(tuple(cases), START_S * servers)


def call_s(case: Case, rule: Rule) -> float:
    """About how long one call takes, whatever computes it: as if no pair were masked away."""
    speed = FLOPS_PER_S[case.device] * (case.threads if case.device == "cpu" else 1)
    if rule.score_elements(case) > 1:
        speed /= WIDE_SCORE_SLOWER
    return max(LEAST_CALL_S, flops(case, rule, case.B * case.H * case.Lq * case.Lk) / speed)


def _case_forecast(
    case: Case, rule: Rule, backends: Sequence[Backend], options: Options, cores: int
) -> CaseForecast:
    name, cells = case_id(case), len(backends)
    if not cells:
        return CaseForecast(name, 0)
    each_s = call_s(case, rule)
    near = "near" not in options.without
    draws = family_draws(case, NORMAL) + (0 if case.pass_ == "backward" else FAMILY_DRAWS)
    solved_flops = flops(case, rule, case.B * case.H * case.Lq * case.Lk)
    elements = activation_elements(case, rule)
    given_s = elements * GIVEN_S
    oracle_s = (draws + TIMED_DRAWS) * (
        COMPARE_S + elements * DRAWN_S + min(solved_flops, ORACLE_FLOPS) / ORACLE_FLOPS_PER_S
    )
    at_once = min(cores, cells)
    compiling = sum(backend.compiles for backend in backends)
    one_s = PREPARE_S + draws * (COMPARE_S + given_s + each_s)
    if options.timed:
        one_s += _warm_up_s(_WARM_UP, each_s)
    checking_s = oracle_s + one_s + cells * one_s / at_once
    if near:
        checking_s += NEAR_S * (1 + (cells - compiling) / at_once)
    compiling_s = COMPILE_S * -(-compiling // cores)
    if not options.timed:
        return CaseForecast(name, cells, checking_s=checking_s, compiling_s=compiling_s)
    plan = plan_calls(each_s * 1e9, options)
    turns = plan.sets * STRETCHES * plan.samples
    timing_s = cells * turns * ((plan.calls + plan.warm_calls) * each_s + TURN_S)
    warm_s = _warm_up_s(WORKER_WARM_UP, each_s)
    processes_s = plan.sets * SCALE_S
    for backend in backends:
        # One more for the peak of memory, where a call or two is all there is to do.
        processes_s += (plan.sets + 1) * (CHILD_S + given_s + warm_s)
        if not can_be_forked(backend, case):
            processes_s += LONG_WORKERS * (PREPARE_S + (COMPILE_S if backend.compiles else 0))
    over = plan.sets * STRETCHES * each_s > 2 * options.budget_s
    return CaseForecast(name, cells, timing_s, processes_s, checking_s, compiling_s, over)


def _warm_up_s(warm_up: WarmUp, each_s: float) -> float:
    """What warming up takes at most: all its calls, or its time and one call more."""
    return min(max(warm_up.most_calls * each_s, warm_up.least_s), warm_up.most_s + each_s)
