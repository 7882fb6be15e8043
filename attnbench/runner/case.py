"""One case until it is measured: refuse, check, plan; and the records of backends that are not measured."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from msgspec.structs import astuple, replace

from attnbench.cases.ids import case_id
from attnbench.cases.memory import free_memory
from attnbench.cases.work import held_bytes, human_bytes, pool_bytes, pools_of, quadratic_bytes, too_large
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import Registry, encoding_source, storage_source
from attnbench.runner.check import (
    Candidate,
    Entries,
    Failures,
    check_all,
    check_reference,
    check_variants,
    kernel_of,
)
from attnbench.runner.context import CaseContext, open_context
from attnbench.runner.input_pools import filled_pools
from attnbench.runner.machine import sharing_note
from attnbench.runner.plan import plan_candidates
from attnbench.runner.pool import ScaleMeter, WorkerPool
from attnbench.runner.processes import HelperLost, VerifierFailed, VerifierLink, WorkerFailed
from attnbench.runner.progress import Clock
from attnbench.stats.protocol import ORACLE_FLOPS, SEGMENTS, TIMED_DRAWS
from attnbench.stats.records import checked_record
from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.device import CPU, DEVICES
from attnbench.types.encoding import encoding_name
from attnbench.types.mask import mask_text
from attnbench.types.problem import kept_inputs
from attnbench.types.record import CandidatePlan, CaseLine, Failure, Line, Record, RepetitionLine
from attnbench.types.rule import Rule
from attnbench.types.status import MEANING, Check, Status
from attnbench.types.storage import baseline_in

_MEMORY_SHARE = 0.8
"""The share of free memory that a backend may allocate unless the user says otherwise."""

_CONTEXT_BYTES = 2**29
"""Assumed for what a process takes of a device before it allocates anything."""

_TRIVIAL = {
    "zeros": "zeros",
    "first_value": "the value of the first key",
    "own_value": "the value at each query's own position",
    "mean": "the mean of all values",
    "running_mean": "the mean of the visible values",
    "nearest_value": "the value of the key with the largest weight",
}
"""Trivial answers (:mod:`attnbench.verifier.trivial`) in words."""

COMPILES = "compiles slowly: this suite gives it few cases"
"""The reason of a backend that a suite leaves out of a case."""


def pool_bytes_here(case: Case, rule: Rule) -> int:
    """Return the bytes of a pool that inputs rotate in on this machine; 0 where they do not."""
    # Most cases are hot: the files that describe caches are read for the others alone.
    return pool_bytes(case, rule, last_level_cache_bytes(CPU.name)) if case.cache == "rotating" else 0


def refusal(
    backend: Backend, case: Case, rule: Rule, *, devices: Collection[str]
) -> tuple[Status, str] | None:
    """Return the status and the reason if a backend cannot run a case, without starting it; or None.

    devices: the kinds of device that the machine has besides its processor.
    """
    if not case.on_host and case.device not in devices:
        return "unavailable", f"this machine has no {DEVICES[case.device].title}"
    if case.device not in backend.devices:
        return "unavailable", f"runs on {_all_of(backend.devices)} only"
    if case.operation not in backend.operations:
        return "unsupported", f"computes {_all_of(backend.operations)}, not {case.operation}"
    if case.storage not in backend.storages:
        return "unsupported", f"takes {_all_of(backend.storages)} inputs, not {case.storage}"
    if encoding_name(case) not in backend.encodings:
        return "unsupported", f"takes keys and values as {_all_of(backend.encodings)}, not {case.kv}"
    for output in case.returns:
        if output not in backend.returns:
            return "unsupported", f"does not return {output}"
    for name in backend.converts:
        if name not in kept_inputs(case, rule):
            return "unsupported", f"converts {name}, which no program keeps between calls of {case.storage}"
    if backend.rules is not None and case.rule not in backend.rules:
        return "unsupported", f"computes {_all_of(backend.rules)}, not {case.rule}"
    if backend.needs_dot_form and not rule.has_dot_form:
        return "unsupported", f"needs a dot product; {case.rule} has no such form"
    if case.dtype not in backend.dtypes:
        return "unsupported", f"computes in {_all_of(backend.dtypes)}, not {case.dtype}"
    if case.pass_ not in backend.passes:
        return "unsupported", f"computes the {_all_of(backend.passes)} pass, not {case.pass_}"
    if case.pass_ != "forward" and case.cache == "rotating":
        return "unsupported", "inputs rotate in forward passes only"
    if case.pass_ != "forward" and case.batch and rule.parameters(case):
        return "unsupported", f"in a batch no gradients of parameters are checked, and {case.rule} has some"
    if case.pass_ != "forward" and (reason := rule.no_gradients(case)) is not None:
        return "unsupported", reason
    if missing := backend.lacks_masks(case.mask):
        return "unsupported", f"takes no mask with {_all_of(missing)}"
    if not case.mask.ignores("h") and not backend.masks_by_head:
        return "unsupported", f"takes one mask for all heads; the case has {mask_text(case.mask)}"
    if case.dropout and not backend.dropout:
        return "unsupported", f"drops no weights; the case has dropout {case.dropout:g}"
    return None


def _all_of(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


@dataclass
class CaseRun:
    """A case, everything that running it needs, and what is stored of it.

    names: backends, in order. left_out: backends left out of this case because they compile for seconds.
    write: append a line to the run file. look: the repetitions after which decided backends of a live
    comparison stop; 0 for none. planned, repetitions, recorded: the lines by now, with those of an earlier
    part of the run; of records the backends. losses: how often a process of attnbench was lost meanwhile.
    """

    pool: WorkerPool
    scale: ScaleMeter
    registry: Registry
    case: Case
    names: tuple[str, ...]
    left_out: frozenset[str]
    clock: Clock
    write: Callable[[Line], None]
    look: int = 0
    planned: CaseLine | None = None
    repetitions: list[RepetitionLine] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    losses: int = 0

    @cached_property
    def id(self) -> str:
        """The case's id."""
        return case_id(self.case)

    def notify(self, doing: str) -> None:
        """Report what the run does now in this case."""
        self.clock.notify(self.id, doing)

    @cached_property
    def pool_bytes(self) -> int:
        """The bytes of a pool that the inputs of a timed case rotate in; 0 where they do not."""
        if not self.pool.options.timed:
            return 0
        return pool_bytes_here(self.case, self.registry.rule(self.case.rule))

    def put(self, record: Record) -> None:
        """Write a record, once for each backend."""
        if record.backend not in self.recorded:
            self.recorded.add(record.backend)
            said = self.pool.options.note
            self.write(replace(record, notes=[*record.notes, said]) if said else record)

    def record_failure(self, backend: str, failure: WorkerFailed) -> None:
        """Write the record of a backend that failed, and tell what it printed and raised."""
        if failure.printed or failure.trace:
            self.clock.tell_failure(self.id, backend, failure.printed, failure.trace)
        accuracy = failure.accuracy
        if accuracy is not None and not all(isfinite(number) for number in astuple(accuracy)):
            # A line of the file cannot hold such numbers.
            accuracy = None
        record = Record(
            self.id, self.case.rule, backend, failure.status, failure.reason,
            failed_check=failure.check, failed_case=failure.case, failed_on=list(failure.failed_on),
            accuracy=accuracy, dropout=failure.dropout,
        )  # fmt: skip
        self.put(record)

    def record_failures(self, failures: Failures) -> None:
        """Write the records of backends that failed, in the order of the run."""
        for backend in self.names:
            if backend in failures:
                self.record_failure(backend, failures[backend])

    @contextmanager
    def losses_noted(self) -> Iterator[None]:
        """Note the loss of a process. If it is the second, and no backend's doing, the records say so."""
        try:
            yield
        except HelperLost as lost:
            if lost.backend:
                reason = f"{lost}, and no other backend ran then"
                self.record_failure(lost.backend, WorkerFailed("crashed", reason))
            elif self.losses:
                left = [self.registry.backends[name] for name in self.names if name not in self.recorded]
                self.record_all(left, lost.status, str(lost))
            self.losses += 1
            raise

    def begin_again(self, why: str) -> None:
        """Have the case begun again by new processes, once: a judge that failed is asked again first.

        Raises:
            HelperLost: this is the first time.
        """
        if not self.losses:
            raise HelperLost(why)

    def begin_again_if_unjudged(self, failures: Iterable[WorkerFailed | Failure]) -> None:
        """Have the case begun again, once, if the judge failed on a backend; as :meth:`begin_again`."""
        for failure in failures:
            if MEANING[failure.status].unknown:
                self.begin_again(failure.reason)

    def record_all(self, entries: Entries, status: Status, reason: str, check: Check = "") -> None:
        """Write the same refusal or failure for several backends."""
        for entry in entries:
            self.put(Record(self.id, self.case.rule, entry.name, status, reason, failed_check=check))


@dataclass(frozen=True)
class CheckedCase:
    """A case that is open, with candidates that passed its check and are planned."""

    run: CaseRun
    context: CaseContext
    planned: CaseLine
    candidates: tuple[Candidate, ...]


def check_case(run: CaseRun, closing: ExitStack) -> CheckedCase | None:
    """Check the backends of a case; return it if it is to be measured, open until ``closing`` closes.

    Writes the record of each backend that is not measured.
    """
    entries = _not_refused(run)
    if not entries:
        return None
    with ExitStack() as opened:
        checked = _checked(run, entries, opened)
        if checked is not None:
            closing.push(opened.pop_all())
        return checked


def _checked(run: CaseRun, entries: Entries, opened: ExitStack) -> CheckedCase | None:
    pool, planned = run.pool, run.planned
    rule, operation = run.registry.rules[run.case.rule], run.registry.operations[run.case.operation]
    opening = rm.OpenCase(
        case=run.id,
        rule_source=rule.source,
        timed_entropy=planned.draw_entropy if planned else secrets.randbits(63),
        # A check without times needs one draw that nobody could know before.
        timed_draws=TIMED_DRAWS if pool.options.timed else 1,
        oracle_flops=ORACLE_FLOPS,
        without=pool.options.without,
        operation_source=operation.source,
        storage_source=storage_source(run.registry, run.case),
        encoding_source=encoding_source(run.registry, run.case),
    )
    limit_bytes = pool.options.memory_limit_bytes or int(free_memory() * _MEMORY_SHARE)
    limit_bytes += run.pool_bytes
    variant: Mapping[str, rm.Judged] = {}
    try:
        verifier = opened.enter_context(pool.lent_verifier())
        solved = open_context(verifier, opening, run.case.threads, limit_bytes)
        with ThreadPoolExecutor(1) as solver, _ended_early(verifier):
            # The oracle works on one core, so it solves the case while the variant case is checked.
            solving = solver.submit(opened.enter_context, solved)
            if "variant_case" not in pool.options.without:
                run.notify("variant case")
                with pool.lent_verifier() as other:
                    variant, failures = check_variants(
                        pool,
                        other,
                        run.case,
                        rule,
                        opening,
                        entries,
                        limit_bytes,
                    )
                run.begin_again_if_unjudged(failures.values())
                run.record_failures(failures)
                entries = [entry for entry in entries if entry.name not in failures]
                run.clock.spend("variant_case")
                if not entries:
                    return None
            run.notify("oracle")
            context = solving.result()
        run.clock.spend("oracle")
        if run.pool_bytes:
            context = _with_pools(run, context, entries, opened)
        passed = _passed(run, context, entries, variant)
        for candidate in passed:
            opened.callback(candidate.let_go)
    except VerifierFailed as failure:
        if not failure.late:
            run.begin_again(str(failure))
        run.record_all(entries, "unjudged", str(failure), failure.check)
    except WorkerFailed as failure:
        reason = f"the plain reference failed: {failure.reason}"
        if MEANING[failure.status].declined:
            run.record_all(entries, failure.status, reason, "reference")
            return None
        # No backend caused it.
        if failure.status != "timeout":
            run.begin_again(reason)
        run.record_all(entries, "unjudged", reason, "reference")
    else:
        found = {one.name: _found(run, one) for one in passed}
        if pool.options.timed and passed:
            return _planned(run, context, passed, found)
        for name, plan in found.items():
            run.put(checked_record(run.id, run.case.rule, name, plan, run.pool.options.accuracy))
    return None


def _with_pools(run: CaseRun, context: CaseContext, entries: Entries, opened: ExitStack) -> CaseContext:
    """Return the context with the pools that its workers share, until ``opened`` closes."""
    backends = [entry.record for entry in entries]
    run.notify(f"fill {human_bytes(run.pool_bytes * pools_of(run.case, backends))} of rotating inputs")
    pools = opened.enter_context(filled_pools(run.pool, context, backends))
    run.clock.spend("check")
    return dataclasses.replace(context, pools=pools)


@contextmanager
def _ended_early(verifier: VerifierLink) -> Iterator[None]:
    """End a verifier that another thread waits for where something is raised, as by Ctrl-C."""
    try:
        yield
    except BaseException:
        verifier.close()
        raise


def _passed(
    run: CaseRun, context: CaseContext, entries: Entries, variant: Mapping[str, rm.Judged]
) -> list[Candidate]:
    """Return the backends that pass, and write the records of the others."""
    check_reference(run.pool, context)
    passed: list[Candidate] = []
    insensitive = _insensitive(run, context)
    # Where values prove nothing, other checks still do: an output may share memory with an input. The
    # statistics of dropout have no meaning there.
    if not (insensitive and run.case.dropout):
        passed, failures = check_all(
            run.pool, context, entries, variant, lambda name: run.notify(f"check {name}"),
            together=_fit_together(run, entries),
        )  # fmt: skip
        try:
            run.begin_again_if_unjudged(failures.values())
        except HelperLost:
            for candidate in passed:
                candidate.let_go()
            raise
        run.record_failures(failures)
        run.clock.spend("check")
    if not insensitive:
        return passed
    for candidate in passed:
        candidate.let_go()
    run.record_all(entries, "unsupported", insensitive, "trivial_answer")
    return []


def _planned(
    run: CaseRun, context: CaseContext, passed: Sequence[Candidate], found: dict[str, CandidatePlan]
) -> CheckedCase:
    """Write the plan of the case, unless an earlier part of the run has one."""
    if run.planned is None:
        options = run.pool.options
        run.planned = CaseLine(
            case=run.id,
            segments=SEGMENTS,
            draw_entropy=context.opening.timed_entropy,
            pairs=context.opened.pairs,
            flops=context.opened.flops,
            bytes_moved=context.opened.bytes_moved,
            candidates=plan_candidates(
                found,
                dataclasses.replace(options, baseline=baseline_in(run.case, options.baseline)),
                sharing_note(run.pool.all_cpus, context.threads),
            ),
        )
        run.write(run.planned)
    plans = run.planned.candidates
    candidates = tuple(
        # How it is prepared is of this part of the run: it decides which process there is.
        dataclasses.replace(one, plan=replace(plans[one.name], anew=one.plan.anew))
        for one in passed
        if one.name in plans
    )
    return CheckedCase(run, context, run.planned, candidates)


def _insensitive(run: CaseRun, context: CaseContext) -> str:
    """Say why the case cannot detect errors; "" where it can."""
    if "trivial_answers" in run.pool.options.without:
        return ""
    tried, _ = context.verifier.ask(rm.TryTrivialAnswers(), rm.Tried)
    if tried.unseen:
        return "this case cannot detect errors: no row of its output shows if weights are dropped"
    if not tried.passed:
        return ""
    what = _TRIVIAL.get(tried.passed, f"the answer of {tried.passed}")
    return f"this case cannot detect errors: returning {what} would pass"


def _not_refused(run: CaseRun) -> Entries:
    """Return the backends to start; the others are recorded with the reason."""
    rule, torch = run.registry.rule(run.case.rule), run.pool.torch
    free_bytes = torch.free_bytes(run.case.device) or free_memory()
    left: Entries = []
    for name in run.names:
        if name in run.recorded:
            continue
        entry = run.registry.backends[name]
        refused = refusal(entry.record, run.case, rule, devices=torch.cards)
        if refused is None and name in run.left_out:
            refused = ("unsupported", COMPILES)
        if refused is not None:
            run.record_all([entry], *refused)
        else:
            left.append(entry)
    pools = pools_of(run.case, [entry.record for entry in left])
    fitting: Entries = []
    for entry in left:
        large = too_large(run.case, rule, entry.record, free_bytes, pools, run.pool_bytes)
        if large is not None:
            run.record_all([entry], "out_of_memory", large)
        else:
            fitting.append(entry)
    return fitting


def _fit_together(run: CaseRun, entries: Entries) -> bool:
    """Return whether all backends may be checked at the same time: on a device they share its memory.

    A check holds its inputs twice and several outputs, and each process a context of the driver.
    """
    if run.case.on_host:
        return True
    case, rule = run.case, run.registry.rule(run.case.rule)
    held = 3 * held_bytes(case, rule) + _CONTEXT_BYTES
    needed = sum(held + quadratic_bytes(case, rule, entry.record) for entry in entries)
    return needed <= run.pool.torch.free_bytes(case.device)


def _found(run: CaseRun, candidate: Candidate) -> CandidatePlan:
    """Return what the check of a candidate found, with the kernel that it called and the notes on dropout."""
    found, notes = candidate.plan, list(candidate.plan.notes)
    if (dropout := found.dropout) is not None:
        some = "" if dropout.rows == dropout.rows_of else f", in {dropout.rows} of {dropout.rows_of} rows"
        notes.append(
            f"dropout {run.case.dropout:g}: {dropout.p:.4g} by its spread over {dropout.calls} calls "
            f"({dropout.p_least:.4g} to {dropout.p_most:.4g} allowed){some}"
        )
    installed = (entry.record for entry in run.registry.backends.values())
    kernel = kernel_of(found.ran, candidate.entry.record, installed)
    return replace(found, kernel_of=kernel, notes=notes)
