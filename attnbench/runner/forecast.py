"""How long a run will take, from its cases and options alone: nothing is started and nothing measured.

An estimate for people who wait. The constants were read off runs of the suite ``smoke`` on two shared
cores, from the phases that each run file ends with; elsewhere they are off by what that machine is faster.
What only a backend's code knows (whether it supports a case) is not asked, so there may be fewer cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnbench.cases.ids import case_id
from attnbench.cases.work import activation_elements, flops, too_large
from attnbench.inputs.kinds import NORMAL, family_draws
from attnbench.ipc.messages import WarmUp
from attnbench.plugins.registry import Registry
from attnbench.runner.case import refusal
from attnbench.runner.options import Options, Order, left_out
from attnbench.runner.plan import plan_calls
from attnbench.runner.repetitions import WORKER_WARM_UP
from attnbench.stats.protocol import LONG_WORKERS, can_be_forked
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


def forecast(
    order: Order, registry: Registry, options: Options, *, cores: int, free_bytes: int, has_cuda: bool = True
) -> Forecast:
    """What a run will take. cores: of this process. free_bytes: of memory. has_cuda: whether to count on a
    device."""
    devices = ("cuda",) if has_cuda else ()
    cases = []
    for case in order.cases:
        backends = entered(order, registry, case, free_bytes, devices)
        cases.append(_case_forecast(case, registry.rule(case.rule), backends, options, cores))
    servers = len({case.threads for case in order.cases} | {1})
    return Forecast(tuple(cases), START_S * servers)


def entered(
    order: Order, registry: Registry, case: Case, free_bytes: int, cuda_devices: tuple[str, ...]
) -> list[Backend]:
    """The backends that aren't refused on a case before anything is started."""
    rule = registry.rule(case.rule)
    without = left_out(order, registry, case_id(case))
    backends = [registry.backends[name].record for name in order.backends if name not in without]
    return [
        backend
        for backend in backends
        if refusal(backend, case, rule, cuda_devices=cuda_devices) is None
        and too_large(case, rule, backend, free_bytes) is None
    ]


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
    oracle_s = (draws + options.timed_draws) * (
        COMPARE_S + elements * DRAWN_S + min(solved_flops, options.oracle_flops) / ORACLE_FLOPS_PER_S
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
    turns = plan.sets * options.stretches * plan.samples
    timing_s = cells * turns * ((plan.calls + plan.warm_calls) * each_s + TURN_S)
    warm_s = _warm_up_s(WORKER_WARM_UP, each_s)
    processes_s = plan.sets * SCALE_S
    for backend in backends:
        # One more for the peak of memory, where a call or two is all there is to do.
        processes_s += (plan.sets + 1) * (CHILD_S + given_s + warm_s)
        if not can_be_forked(backend, case):
            processes_s += LONG_WORKERS * (PREPARE_S + (COMPILE_S if backend.compiles else 0))
    over = plan.sets * options.stretches * each_s > 2 * options.budget_s
    return CaseForecast(name, cells, timing_s, processes_s, checking_s, compiling_s, over)


def _warm_up_s(warm_up: WarmUp, each_s: float) -> float:
    """What warming up takes at most: all its calls, or its time and one call more."""
    return min(max(warm_up.most_calls * each_s, warm_up.least_s), warm_up.most_s + each_s)
