"""The plan of a run, and a forecast of its time. Nothing is started and nothing measured.

The constants of the forecast come from runs of the suite ``smoke`` on two shared cores: from the phases that
each run file ends with. A faster machine needs less, and other work makes it more. The code of a backend may
refuse more cases.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.memory import free_memory
from attnbench.cases.select import Selection
from attnbench.cases.work import activation_elements, all_pairs, flops, pools_of, too_large
from attnbench.inputs.kinds import NORMAL, stress_draws
from attnbench.plugins.registry import Registry
from attnbench.runner.case import pool_bytes_here, refusal
from attnbench.runner.machine import allowed_cpus
from attnbench.runner.options import Options
from attnbench.runner.plan import plan_calls
from attnbench.stats.protocol import LONG_WORKERS, ORACLE_FLOPS, TIMED_DRAWS, can_be_forked
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.device import DEVICES
from attnbench.types.encoding import DTYPE, encoding_name
from attnbench.types.errors import BadInput
from attnbench.types.record import Shard
from attnbench.types.rule import Rule
from attnbench.types.storage import baseline_in

START_S = 3.0
"""Before the first case, for each number of threads: a server loads torch, the verifier loads plugins."""

PREPARE_S, VARIANT_CASE_S = 0.15, 0.1
"""To start and prepare a worker; to check a backend on the variant case."""

COMPARE_S = 0.01
"""To give a worker inputs, and to compare its output."""

COMPILE_S, COMPILE_AGAIN_S = 12.0, 4.0
"""To prepare a backend that compiles: the first time, and in a further process, which finds what the compiler
of C++ made. Of the CPU time of flex and compiled on one small case, a third was left the second time."""

STRESS_DRAWS = 4
"""Draws of a check besides ordinary ones."""

WORKER_S, SLOT_S, SCALE_S = 0.02, 0.0003, 0.02
"""A worker prepared for a case in one repetition, on average over the cases that a process serves; a slot
beyond its calls; the speed of the machine, once a repetition."""

DRAWN_S, GIVEN_S = 5e-8, 2e-8
"""For each number of the inputs: to draw it and solve with it; to give it to a worker and refresh it. When
decoding, with much memory and few operations, that is most of the time."""

POOL_S = 1e-9
"""For each byte of a pool of inputs: to fill it, once for a case."""

ORACLE_FLOPS_PER_S = 5e9
WIDE_SCORE_SLOWER = 10
"""Rules that hold several numbers for each pair are so much slower, because memory limits them."""


LEAST_CALL_S = 50e-6

TOGETHER_S, MOST_CASES = 2.5, 4
"""Cases are measured together while one repetition of them takes at most so long by the forecast, checks
included. Beyond four cases little is saved, and each needs a verifier of its own."""


def command_line() -> tuple[str, ...]:
    """Return the command that started this process, with its program's name instead of its path."""
    program = Path(sys.argv[0]).name
    return ("attnbench" if program == "__main__.py" else program, *sys.argv[1:])


@dataclass(frozen=True)
class RunPlan:
    """The cases and backends of a run.

    backends: in order. named: those that the user named, or whose plugin the user named; it is an error if
    one runs nowhere. compiled_on: ids of the cases on which compiling backends run unless named; None for
    all. asked: by the id of a case, its backends where those are not all; a resumed run uses all. counts: of
    calls in one step, by the id of a case. stages: of these counts; without: what a step computes beside its
    cases; share: which part of a program's time these calls took. shard: which part of a selection the cases
    are. not_asked: installed backends that the named ones left out. command: argv. The last four are for the
    manifest.
    """

    cases: tuple[Case, ...]
    backends: tuple[str, ...]
    registry: Registry
    options: Options
    named: tuple[str, ...] = ()
    compiled_on: frozenset[str] | None = None
    asked: Mapping[str, tuple[str, ...]] | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    share: float | None = None
    shard: Shard | None = None
    not_asked: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default_factory=command_line)

    def names(self, case: str) -> tuple[str, ...]:
        """Return the backends of a case, by its id."""
        return self.backends if self.asked is None else self.asked.get(case, ())

    def left_out(self, case: str) -> frozenset[str]:
        """Return the backends that are left out of a case (its id) because they compile for seconds."""
        if self.compiled_on is None or case in self.compiled_on:
            return frozenset()
        compiling = {name for name in self.backends if self.registry.backends[name].record.compiles}
        return frozenset(compiling - set(self.named))

    @cached_property
    def forecast(self) -> Forecast:
        """A forecast of the time on this machine."""
        return forecast(self, cores=len(allowed_cpus()), free_bytes=free_memory())


def with_baseline(options: Options, cases: Iterable[Case], of_suites: str | None = None) -> Options:
    """Return options with a baseline: the user's, else that of the suites, else that of all storages.

    It is "" where the storages of the cases have unlike ones: each case then has that of its storage.
    """
    named = options.baseline or of_suites
    found = {baseline_in(case, "") for case in cases} if not named else {named}
    return replace(options, baseline=found.pop() if len(found) == 1 else "")


def plan_run(
    selection: Selection,
    backends: Sequence[str],
    registry: Registry,
    options: Options,
    brought: Sequence[str] = (),
) -> RunPlan:
    """Plan a run of selected cases with the named backends.

    If none is named, all run that compute the operation of some case in its storage and encoding, with the
    baseline and ``brought``.

    brought: backends of plugins that the user named. They count as named where no backend is.

    Raises:
        BadInput: a backend does not exist, or no installed one takes the storage and encoding of a case.
    """
    forms = frozenset((case.operation, case.storage, encoding_name(case)) for case in selection.cases)
    for name in (*backends, options.baseline, selection.baseline):
        if name:
            registry.backend(name)
    of_suites = selection.baseline
    if of_suites and forms.isdisjoint(_taken(registry.backends[of_suites].record)):
        # The user chose another storage or encoding for the cases of a suite.
        of_suites = None
    # All shards of a selection have one baseline.
    whole = selection.shard.cases if selection.shard else map(case_id, selection.cases)
    options = with_baseline(options, map(parse_case, whole), of_suites)
    on = selection.compiled_on
    asked = tuple(backends) or _all(registry, forms, (options.baseline, *brought))
    fitting = (
        name for name, entry in registry.backends.items() if not forms.isdisjoint(_taken(entry.record))
    )
    return RunPlan(
        cases=selection.cases,
        backends=asked,
        registry=registry,
        options=options,
        named=tuple(backends or brought),
        compiled_on=None if on is None else frozenset(case_id(case) for case in on),
        counts={case_id(case): count for case, count in selection.counts.items()},
        stages={case_id(case): stage for case, stage in selection.stages.items()},
        without=selection.without,
        share=selection.share,
        shard=selection.shard,
        not_asked=tuple(name for name in fitting if name not in asked),
    )


_Form = tuple[str, str, str]
"""An operation, a storage and an encoding."""


def _taken(backend: Backend) -> frozenset[_Form]:
    """Return the operations, storages and encodings that a backend takes, all combined."""
    return frozenset(product(backend.operations, backend.storages, backend.encodings))


def _all(registry: Registry, forms: frozenset[_Form], named: Sequence[str]) -> tuple[str, ...]:
    """Return all backends but those that are not named and take none of the forms."""
    taken = {name: _taken(entry.record) for name, entry in registry.backends.items()}
    for form in sorted(forms.difference(*taken.values())):
        _, storage, encoding = form
        others = sorted({one for its in taken.values() for one in its if _is_like(form, one)})
        who = {one: ", ".join(name for name, its in taken.items() if one in its) for one in others}
        has = "; ".join(f"{_form_word(one)} ({names})" for one, names in who.items())
        what = f"the storage {storage!r}" if encoding == DTYPE.name else _form_word(form)
        raise BadInput(f"no installed backend takes {what}; others do: {has}")
    return tuple(name for name, its in taken.items() if name in named or not forms.isdisjoint(its))


def _is_like(form: _Form, other: _Form) -> bool:
    """Return whether one form may stand in for another of its operation.

    It has another storage, or of an encoding either the storage or the encoding is the same.
    """
    operation, storage, encoding = form
    its_operation, its_storage, its_encoding = other
    if its_operation != operation:
        return False
    if encoding == DTYPE.name:
        return its_encoding == DTYPE.name and its_storage != "dense"
    return its_encoding != DTYPE.name and (its_storage == storage or its_encoding == encoding)


def _form_word(form: _Form) -> str:
    """Return a storage and an encoding as ids have them, without the usual encoding."""
    _, storage, encoding = form
    return storage if encoding == DTYPE.name else f"{storage}/kv={encoding}"


@dataclass(frozen=True)
class CaseForecast:
    """The time of a case, in seconds.

    cells: backends that are not refused before they start. timing_s: slots: timed calls, warm calls and
    handoffs. processes_s: starting workers, and the speed of the machine. checking_s: the oracle, preparing,
    comparing outputs, warming up. compiling_s: of backends that compile. over_budget: whether the fewest
    calls already take more than twice the budget. declined: why each backend is refused, where all are.
    """

    case: str
    cells: int
    timing_s: float = 0.0
    processes_s: float = 0.0
    checking_s: float = 0.0
    compiling_s: float = 0.0
    over_budget: bool = False
    declined: str = ""

    @property
    def total_s(self) -> float:
        """The sum."""
        return self.timing_s + self.processes_s + self.checking_s + self.compiling_s


@dataclass(frozen=True)
class Forecast:
    """The time of a run. start_s: before the first case."""

    cases: tuple[CaseForecast, ...]
    start_s: float

    @property
    def cells(self) -> int:
        """The cells of all cases."""
        return sum(case.cells for case in self.cases)

    @property
    def total_s(self) -> float:
        """The sum."""
        return self.start_s + sum(case.total_s for case in self.cases)


@dataclass(frozen=True)
class Dearest:
    """Backends or a case, by names or id, and the seconds by which a run without them is shorter."""

    name: str
    saves_s: float


WORTH_NAMING = 0.1
"""The least share of a run that a backend must save to be named."""
WORTH_NAMING_CASE = 1 / 3
"""That of a case, which somebody asked for."""


def dearest_backend(plan: RunPlan) -> Dearest | None:
    """Return the backend without which the run is the shortest; None if none takes more than its share.

    Those that compile do so side by side, so they may be dear together where none is alone. All others are
    compared with the baseline, so it is not left out.
    """
    dear = [name for name in plan.backends if name != plan.options.baseline]
    compiling = tuple(name for name in dear if plan.registry.backends[name].record.compiles)
    found = []
    for left_out in (*((name,) for name in dear), compiling):
        others = tuple(name for name in plan.backends if name not in left_out)
        if others:
            saves_s = plan.forecast.total_s - replace(plan, backends=others).forecast.total_s
            if saves_s * len(plan.backends) > plan.forecast.total_s * len(left_out):
                found.append(Dearest(" and ".join(left_out), saves_s))
    return _worth_naming(found, WORTH_NAMING * plan.forecast.total_s)


def dearest_case(foreseen: Forecast) -> Dearest | None:
    """Return the case that takes the longest; None if it takes little of the run, or is its only one."""
    found = [Dearest(case.case, case.total_s) for case in foreseen.cases]
    return _worth_naming(found, WORTH_NAMING_CASE * foreseen.total_s) if len(found) > 1 else None


def one_thread_saves_s(plan: RunPlan) -> float:
    """Return the seconds by which a run with one thread is shorter; 0 where it saves little.

    With several threads no prepared worker is forked, so new ones are started, and compile, several times.
    """
    if plan.asked is not None or all(case.threads == 1 for case in plan.cases):
        return 0.0
    ones = tuple(replace(case, threads=1) if case.on_host else case for case in plan.cases)
    kept = [one for one, case in zip(ones, plan.cases, strict=True) if not plan.left_out(case_id(case))]
    shorter = replace(plan, cases=ones, compiled_on=frozenset(map(case_id, kept)))
    saves_s = plan.forecast.total_s - shorter.forecast.total_s
    return saves_s if saves_s > WORTH_NAMING_CASE * plan.forecast.total_s else 0.0


def _worth_naming(found: Sequence[Dearest], least_s: float) -> Dearest | None:
    most = max(found, key=lambda one: one.saves_s, default=None)
    return most if most is not None and most.saves_s > least_s else None


def groups_of(
    forecasts: Sequence[CaseForecast], cases: Mapping[str, Case], repetitions: int
) -> list[list[CaseForecast]]:
    """Return the cases that are measured together: neighbours with as many threads, and soon done.

    In a run of many cases the shortest comes first and alone, so that an answer is soon there. cases: by
    their ids. repetitions: of the run.
    """
    groups: list[list[CaseForecast]] = []
    alone = min(forecasts, key=lambda each: each.total_s) if len(forecasts) > MOST_CASES else None
    if alone is not None:
        groups += [[alone], []]
    for each in (one for one in forecasts if one is not alone):
        group = groups[-1] if groups else []
        if (
            group
            and len(group) < MOST_CASES
            and sum(one.total_s for one in group) + each.total_s <= TOGETHER_S * repetitions
            and cases[group[0].case].threads == cases[each.case].threads
            # Each case has a pool of its own, and the machine memory for one.
            and "rotating" not in (cases[group[0].case].cache, cases[each.case].cache)
        ):
            group.append(each)
        else:
            groups.append([each])
    return [group for group in groups if group]


def forecast(plan: RunPlan, *, cores: int, free_bytes: int) -> Forecast:
    """Estimate the time of a run. cores: of this process. free_bytes: of memory."""
    cases = []
    for case in plan.cases:
        rule, left_out = plan.registry.rule(case.rule), plan.left_out(case_id(case))
        wanted = [plan.registry.backends[name].record for name in plan.backends if name not in left_out]
        declined = _declined(wanted, case, rule, free_bytes, timed=plan.options.timed)
        backends = [backend for backend in wanted if declined[backend.name] is None]
        found = _case_forecast(case, rule, backends, plan.options, cores)
        cases.append(found if backends else replace(found, declined=_reasons(declined)))
    servers = len({case.threads for case in plan.cases} | {1})
    return Forecast(tuple(cases), START_S * servers)


def _declined(
    backends: Sequence[Backend], case: Case, rule: Rule, free_bytes: int, *, timed: bool
) -> dict[str, str | None]:
    """Return why each backend is refused, by its name; None where it is not."""
    refused = {one.name: refusal(one, case, rule, devices=(case.device,)) for one in backends}
    declined = {name: None if why is None else why[1] for name, why in refused.items()}
    left = [backend for backend in backends if declined[backend.name] is None]
    # Of the memory of a device nothing is known here.
    if case.on_host:
        each_bytes = pool_bytes_here(case, rule) if timed else 0
        pools = pools_of(case, left)
        declined |= {one.name: too_large(case, rule, one, free_bytes, pools, each_bytes) for one in left}
    return declined


def _reasons(declined: Mapping[str, str | None]) -> str:
    """Return the reasons of backends in words, each with those that have it."""
    names: dict[str, list[str]] = {}
    for name, reason in declined.items():
        names.setdefault(reason or "", []).append(name)
    return "; ".join(f"{', '.join(its)} ({reason})" for reason, its in names.items())


def call_s(case: Case, rule: Rule) -> float:
    """Estimate the time of one call of any backend, as if no pair were masked."""
    speed = DEVICES[case.device].flops_per_s * (case.threads if case.on_host else 1)
    if rule.score_elements(case) > 1:
        speed /= WIDE_SCORE_SLOWER
    return max(LEAST_CALL_S, flops(case, rule, all_pairs(case)) / speed)


def _case_forecast(
    case: Case, rule: Rule, backends: Sequence[Backend], options: Options, cores: int
) -> CaseForecast:
    name, cells = case_id(case), len(backends)
    if not cells:
        return CaseForecast(name, 0)
    each_s, elements = call_s(case, rule), activation_elements(case, rule)
    at_once = min(cores, cells)
    compiling = sum(backend.compiles for backend in backends)
    compiling_s = COMPILE_S * -(-compiling // cores)
    draws = stress_draws(case, NORMAL) + (0 if case.pass_ == "backward" else STRESS_DRAWS)
    solved_flops = min(flops(case, rule, all_pairs(case)), ORACLE_FLOPS)
    solve_s = COMPARE_S + elements * DRAWN_S + solved_flops / ORACLE_FLOPS_PER_S
    given_s = elements * GIVEN_S
    check_s = PREPARE_S + draws * (COMPARE_S + given_s + each_s)
    secret_draws = TIMED_DRAWS if options.timed else 1
    checking_s = (draws + secret_draws) * solve_s + check_s + cells * check_s / at_once
    if "variant_case" not in options.without:
        checking_s += VARIANT_CASE_S * (1 + (cells - compiling) / at_once)
    if not options.timed:
        return CaseForecast(name, cells, checking_s=checking_s, compiling_s=compiling_s)
    checking_s += POOL_S * pools_of(case, backends) * pool_bytes_here(case, rule)
    plan = plan_calls(each_s * 1e9, options)
    slots = plan.repetitions * plan.segments * plan.samples
    timing_s = cells * slots * ((plan.calls + plan.warm_calls) * each_s + SLOT_S)
    processes_s = plan.repetitions * (SCALE_S + cells * (WORKER_S + given_s + each_s))
    for backend in backends:
        if not can_be_forked(backend, case):
            processes_s += LONG_WORKERS * PREPARE_S
            compiling_s += LONG_WORKERS * COMPILE_AGAIN_S if backend.compiles else 0
    over = plan.repetitions * plan.segments * each_s > 2 * options.budget_s
    return CaseForecast(name, cells, timing_s, processes_s, checking_s, compiling_s, over)
