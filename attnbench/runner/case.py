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
    PassedBackend,
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
from attnbench.types.record import CaseLine, CheckResult, Failure, Line, Record, RepetitionLine
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


def check_case(run: CaseRun, closing: ExitStack, *, alone: bool) -> CheckedCase | None:
    """Check the backends of a case; return it if it is to be measured, open until ``closing`` closes.

    Writes the record of each backend that is not measured. alone: check one backend at a time, to find one
    that ends its server.
    """
    entries = _not_refused(run)
    if not entries:
        return None
    with ExitStack() as opened:
        checked = CaseUnderWay(run, entries, opened, alone=alone).check()
        if checked is not None:
            closing.push(opened.pop_all())
        return checked


class CaseUnderWay:
    """The check of a case in progress. What its steps open stays open until ``opened`` closes.

    entries: backends that may still pass. alone: as of :func:`check_case`.
    """

    def __init__(self, run: CaseRun, entries: Entries, opened: ExitStack, *, alone: bool) -> None:
        self._run, self._pool, self._entries, self._opened = run, run.pool, entries, opened
        self._alone = alone
        self._variant: Mapping[str, rm.Judged] = {}
        registry, case = run.registry, run.case
        self._rule = registry.rules[case.rule]
        self._opening = rm.OpenCase(
            case=run.id,
            rule_source=self._rule.source,
            timed_entropy=run.planned.draw_entropy if run.planned else secrets.randbits(63),
            # A check without times needs one draw that nobody could know before.
            timed_draws=TIMED_DRAWS if self._pool.options.timed else 1,
            oracle_flops=ORACLE_FLOPS,
            without=self._pool.options.without,
            operation_source=registry.operations[case.operation].source,
            storage_source=storage_source(registry, case),
            encoding_source=encoding_source(registry, case),
        )

    def check(self) -> CheckedCase | None:
        """Return the case if it is to be measured; the record of each backend that is not is written."""
        try:
            context = self._solve_beside_variants()
            if context is None:
                return None
            context = self._with_pools(context)
            passed = self._pass_backends(context)
        except VerifierFailed as failure:
            self._record_lost_judge(failure)
            return None
        except WorkerFailed as failure:
            self._record_lost_reference(failure)
            return None
        found = {one.name: _found(self._run, one) for one in passed}
        if self._pool.options.timed and passed:
            return self._planned(context, passed, found)
        for name, one in found.items():
            record = checked_record(self._run.id, self._run.case.rule, name, one, self._pool.options.accuracy)
            self._run.put(record)
        return None

    def _solve_beside_variants(self) -> CaseContext | None:
        """Open the case with its exact answers. Backends that fail on its variants are entries no more.

        Returns None if none is left.
        """
        limit_bytes = self._pool.options.memory_limit_bytes or int(free_memory() * _MEMORY_SHARE)
        limit_bytes += self._run.pool_bytes
        verifier = self._opened.enter_context(self._pool.lent_verifier())
        solved = open_context(verifier, self._opening, self._run.case.threads, limit_bytes)
        with ThreadPoolExecutor(1) as solver, _ended_early(verifier):
            # The oracle works on one core, so it solves the case while the variant cases are checked.
            solving = solver.submit(self._opened.enter_context, solved)
            if "variant_case" not in self._pool.options.without:
                self._check_variants(limit_bytes)
            if not self._entries:
                return None
            self._run.notify("oracle")
            context = solving.result()
        self._run.clock.spend("oracle")
        return context

    def _check_variants(self, limit_bytes: int) -> None:
        """Check the backends on variants of the case, with another verifier."""
        self._run.notify("variant case")
        with self._pool.lent_verifier() as other:
            self._variant, failures = check_variants(
                self._pool, other, self._run.case, self._rule, self._opening, self._entries, limit_bytes,
                alone=self._alone,
            )  # fmt: skip
        self._run.begin_again_if_unjudged(failures.values())
        self._run.record_failures(failures)
        self._entries = [entry for entry in self._entries if entry.name not in failures]
        self._run.clock.spend("variant_case")

    def _with_pools(self, context: CaseContext) -> CaseContext:
        """Return the context with the pools that workers share, where inputs rotate."""
        run = self._run
        if not run.pool_bytes:
            return context
        backends = [entry.record for entry in self._entries]
        run.notify(f"fill {human_bytes(run.pool_bytes * pools_of(run.case, backends))} of rotating inputs")
        pools = self._opened.enter_context(filled_pools(run.pool, context, backends))
        run.clock.spend("check")
        return dataclasses.replace(context, pools=pools)

    def _pass_backends(self, context: CaseContext) -> list[PassedBackend]:
        """Return the backends that pass, and write the records of the others."""
        run = self._run
        check_reference(run.pool, context)
        passed: list[PassedBackend] = []
        insensitive = _insensitive(run, context)
        # Where values prove nothing, other checks still do: an output may share memory with an input. The
        # statistics of dropout have no meaning there.
        if not (insensitive and run.case.dropout):
            passed, failures = check_all(
                run.pool, context, self._entries, self._variant, lambda name: run.notify(f"check {name}"),
                together=_fit_together(run, self._entries), alone=self._alone,
            )  # fmt: skip
            for one in passed:
                self._opened.callback(one.let_go)
            run.begin_again_if_unjudged(failures.values())
            run.record_failures(failures)
            run.clock.spend("check")
        if not insensitive:
            return passed
        run.record_all(self._entries, "unsupported", insensitive, "trivial_answer")
        return []

    def _record_lost_judge(self, failure: VerifierFailed) -> None:
        """Begin the case again if the verifier failed the first time; else record that nobody judges it."""
        if not failure.late:
            self._run.begin_again(str(failure))
        self._run.record_all(self._entries, "unjudged", str(failure), failure.check)

    def _record_lost_reference(self, failure: WorkerFailed) -> None:
        """Record that there is no plain reference to compare with; no backend caused it."""
        reason = f"the plain reference failed: {failure.reason}"
        if MEANING[failure.status].declined:
            self._run.record_all(self._entries, failure.status, reason, "reference")
            return
        if failure.status != "timeout":
            self._run.begin_again(reason)
        self._run.record_all(self._entries, "unjudged", reason, "reference")

    def _planned(
        self, context: CaseContext, passed: Sequence[PassedBackend], found: Mapping[str, CheckResult]
    ) -> CheckedCase:
        """Write the plan of the case, unless an earlier part of the run has one."""
        run, options = self._run, self._pool.options
        if run.planned is None:
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
            Candidate(
                one.entry, replace(plans[one.name], anew=one.found.anew), one.peak_bytes, one.prepared_worker
            )
            for one in passed
            if one.name in plans
        )
        return CheckedCase(run, context, run.planned, candidates)


@contextmanager
def _ended_early(verifier: VerifierLink) -> Iterator[None]:
    """End a verifier that another thread waits for where something is raised, as by Ctrl-C."""
    try:
        yield
    except BaseException:
        verifier.close()
        raise


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


def _found(run: CaseRun, passed: PassedBackend) -> CheckResult:
    """Return what the check of a backend found, with the kernel that it called and the notes on dropout."""
    found, notes = passed.found, list(passed.found.notes)
    if (dropout := found.dropout) is not None:
        some = "" if dropout.rows == dropout.rows_of else f", in {dropout.rows} of {dropout.rows_of} rows"
        notes.append(
            f"dropout {run.case.dropout:g}: {dropout.p:.4g} by its spread over {dropout.calls} calls "
            f"({dropout.p_least:.4g} to {dropout.p_most:.4g} allowed){some}"
        )
    installed = (entry.record for entry in run.registry.backends.values())
    kernel = kernel_of(found.ran, passed.entry.record, installed)
    return replace(found, kernel_of=kernel, notes=notes)
