"""One case from start to finish: refuse, check, measure, record."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from random import Random

from msgspec.structs import astuple, replace

from attnbench.cases.ids import case_id
from attnbench.cases.memory import free_memory
from attnbench.cases.work import pool_bytes, too_large
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import Entry, Registry
from attnbench.runner.check import MismatchFound
from attnbench.runner.context import CaseContext, open_context
from attnbench.runner.examine import Candidate, examine_all, examine_plain
from attnbench.runner.link import VerifierFailed, WorkerFailed
from attnbench.runner.pool import Scale, WorkerPool
from attnbench.runner.progress import Clock
from attnbench.runner.records import checked_record, fastest, plan_candidates, timed_record
from attnbench.runner.repetitions import RepetitionUnderWay, TimedWorkers, measure_peak
from attnbench.runner.variant import passing_variant
from attnbench.stats.protocol import ORACLE_FLOPS, STRETCHES, TIMED_DRAWS
from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.checks import Check
from attnbench.types.record import Accuracy, CaseLine, Line, Record, SetLine
from attnbench.types.rule import Rule
from attnbench.types.status import Status


def refusal(
    backend: Backend, case: Case, rule: Rule, *, cuda_devices: tuple[str, ...]
) -> tuple[Status, str] | None:
    """The status and reason for which a backend needn't be started on a case, or None."""
    if case.device == "cuda" and not cuda_devices:
        return "unavailable", "this machine has no CUDA device"
    if case.device not in backend.devices:
        return "unavailable", f"runs on {_all_of(backend.devices)} only"
    if case.operation not in backend.operations:
        return "unsupported", f"computes {_all_of(backend.operations)}, not {case.operation}"
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
    if case.pass_ != "forward" and (reason := rule.no_gradients(case)) is not None:
        return "unsupported", reason
    if case.dropout and not backend.dropout:
        return "unsupported", f"drops no weights; the case has dropout {case.dropout:g}"
    return None


def _all_of(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


_MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class Before:
    """What an earlier, killed part of the run has recorded of a case."""

    planned: CaseLine | None = None
    sets: tuple[SetLine, ...] = ()
    recorded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Contest:
    """A case with what is needed to decide it.

    names: backends, in order. left_out: those that are left out here though they'd run, because they compile
    for seconds a case. write appends a line to the run file.
    """

    pool: WorkerPool
    scale: Scale
    registry: Registry
    case: Case
    names: tuple[str, ...]
    left_out: frozenset[str]
    clock: Clock
    write: Callable[[Line], None]
    before: Before
    recorded: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        """The case's id."""
        return case_id(self.case)

    def record(self, backend: str, status: Status, reason: str = "", check: Check = "") -> None:
        """Write the record of a backend that has no timing."""
        self.put(Record(self.id, self.case.rule, backend, status, reason, failed_check=check))

    def put(self, record: Record) -> None:
        """Write a record, once for each backend."""
        if record.backend not in self.recorded:
            self.recorded.add(record.backend)
            self.write(record)

    def record_failure(self, backend: str, failure: WorkerFailed) -> None:
        """Write the record of a backend that failed."""
        record = Record(
            self.id, self.case.rule, backend, failure.status, failure.reason,
            failed_check=failure.check, failed_case=failure.case,
        )  # fmt: skip
        if isinstance(failure, MismatchFound):
            on = list(failure.families)
            accuracy = _in_numbers(failure.accuracy)
            record = replace(record, accuracy=accuracy, dropout=failure.dropout, failed_on=on)
        self.put(record)


def _in_numbers(accuracy: Accuracy | None) -> Accuracy | None:
    """The same where all of it is finite, which a line of a file has no other words for."""
    if accuracy is None or not all(isfinite(number) for number in astuple(accuracy)):
        return None
    return accuracy


def decide(contest: Contest) -> None:
    """Check and measure every backend on one case; each gets exactly one record, written as soon as known."""
    entries = _not_refused(contest)
    if not entries:
        return
    pool, case = contest.pool, contest.case
    planned = contest.before.planned
    opening = rm.OpenCase(
        case=contest.id,
        rule_source=contest.registry.rules[case.rule].source,
        timed_entropy=planned.draw_entropy if planned else secrets.randbits(63),
        timed_draws=TIMED_DRAWS,
        oracle_flops=ORACLE_FLOPS,
        without=pool.options.without,
        operation_source=contest.registry.operations[case.operation].source,
    )
    limit = pool.options.memory_limit_bytes or int(free_memory() * _MEMORY_SHARE)
    limit += _pool_bytes(contest)
    try:
        entries = _right_nearby(contest, entries, limit)
        if not entries:
            return
        contest.clock.tell("oracle")
        with open_context(pool.verifier, opening, case.threads, limit) as context:
            contest.clock.spend("oracle")
            examine_plain(pool, context)
            canary = _canary(contest, context)
            if canary:
                _record_all(contest, entries, "unsupported", canary, "trivial_answer")
                return
            passed = _examine(contest, context, entries)
            contest.clock.spend("check")
            try:
                if pool.options.timed and passed:
                    _measure(contest, context, opening.timed_entropy, passed)
                else:
                    for candidate in passed:
                        contest.put(checked_record(case, candidate, contest.registry))
            finally:
                for candidate in passed:
                    candidate.prepared_worker.kill()
    except VerifierFailed as failure:
        _record_all(contest, entries, "error", str(failure))
    except WorkerFailed as failure:
        # No backend's fault: what is wrong with the reference's output is an error for all of them.
        status = "error" if failure.status == "mismatch" else failure.status
        _record_all(contest, entries, status, f"the plain reference failed: {failure.reason}", "reference")


def _right_nearby(contest: Contest, entries: list[Entry[Backend]], limit: int) -> list[Entry[Backend]]:
    """Those that are right on a case beside this one; the others are recorded."""
    pool = contest.pool
    if "near" in pool.options.without:
        return entries
    contest.clock.tell("a case beside it")
    rule = contest.registry.rules[contest.case.rule]
    operation = contest.registry.operations[contest.case.operation]
    left = passing_variant(pool, contest.case, rule, operation.source, entries, limit, contest.record_failure)
    contest.clock.spend("near")
    return left


def _canary(contest: Contest, context: CaseContext) -> str:
    """Why the case tells right from wrong no better than a canary; "" where it does."""
    if "canaries" in contest.pool.options.without:
        return ""
    tried, _ = context.verifier.ask(rm.TryTrivialAnswers(), rm.Tried)
    if tried.unseen:
        return "the case tells nothing: whether weights are dropped can be seen in no row of its output"
    if not tried.passed:
        return ""
    answer = tried.passed.replace("_", " ")
    return f"the case tells nothing: its check is passed by who computes no attention but gives {answer}"


def _record_all(
    contest: Contest, entries: list[Entry[Backend]], status: Status, reason: str, check: Check = ""
) -> None:
    for entry in entries:
        contest.record(entry.name, status, reason, check)


def _not_refused(contest: Contest) -> list[Entry[Backend]]:
    rule = contest.registry.rule(contest.case.rule)
    free = free_memory()
    left: list[Entry[Backend]] = []
    for name in contest.names:
        if name in contest.before.recorded:
            continue
        entry = contest.registry.backends[name]
        refused = refusal(entry.record, contest.case, rule, cuda_devices=contest.pool.torch.cuda_devices)
        if refused is None and name in contest.left_out:
            refused = (
                "unsupported",
                "compiles for seconds a case, so this suite gives it a few of its cases",
            )
        if refused is not None:
            contest.record(name, *refused)
        else:
            left.append(entry)
    return [entry for entry in left if _fits(contest, entry, free, len(left))]


def _fits(contest: Contest, entry: Entry[Backend], free_bytes: int, contenders: int) -> bool:
    """Whether a case fits into memory with a backend; records the reason where it doesn't."""
    rule, pools = contest.registry.rule(contest.case.rule), contenders * _pool_bytes(contest)
    large = too_large(contest.case, rule, entry.record, free_bytes, pools)
    if large is not None:
        contest.record(entry.name, "out_of_memory", large)
    return large is None


def _pool_bytes(contest: Contest) -> int:
    """Of the pool that the inputs of a timed case rotate in, which each contender holds."""
    if not contest.pool.options.timed:
        return 0
    rule = contest.registry.rule(contest.case.rule)
    return pool_bytes(contest.case, rule, last_level_cache_bytes("cpu"))


def _examine(contest: Contest, context: CaseContext, entries: list[Entry[Backend]]) -> list[Candidate]:
    return examine_all(
        contest.pool,
        context,
        entries,
        failed=contest.record_failure,
        begun=lambda name: contest.clock.tell(f"check {name}"),
    )


def _measure(contest: Contest, context: CaseContext, draw_entropy: int, passed: list[Candidate]) -> None:
    pool, options = contest.pool, contest.pool.options
    planned = contest.before.planned
    if planned is None:
        planned = CaseLine(
            case=context.case,
            stretches=STRETCHES,
            draw_entropy=draw_entropy,
            pairs=context.pairs,
            flops=context.flops,
            bytes_moved=context.bytes_moved,
            contenders=plan_candidates(pool, contest.case, contest.registry, passed),
        )
        contest.write(planned)
    plans = planned.contenders
    candidates = [dataclasses.replace(one, plan=plans[one.name]) for one in passed if one.name in plans]
    lines = list(contest.before.sets)
    workers = TimedWorkers(pool, context, options.sets)
    pool.keep_off_measured_cores(context.threads)
    try:
        for index in range(len(lines), options.sets):
            contest.clock.tell(f"set {index + 1} of {options.sets}")
            dropped = {name for line in lines for name in line.failed}
            starting = [one for one in candidates if index < one.plan.sets and one.name not in dropped]
            if not starting:
                break
            pool.wait_for_servers(context.threads)
            rng = Random(f"{planned.draw_entropy} {index}")
            line = RepetitionUnderWay(pool, context, workers, index, planned.stretches, rng).measure(starting)
            line = replace(line, scale=contest.scale.measure(contest.case, context.bytes_moved))
            contest.write(line)
            lines.append(line)
        contest.clock.spend("sets")
        contest.clock.tell("memory")
        best = fastest(context, candidates, lines)
        outcomes = pool.executor.map(lambda one: _outcome(contest, context, one, lines, best), candidates)
        for candidate, record in zip(candidates, outcomes, strict=True):
            contest.put(replace(record, ran=candidate.plan.ran, kernel_of=candidate.plan.kernel_of))
        contest.clock.spend("memory")
    finally:
        workers.close()
        pool.use_all_cores()


def _outcome(
    contest: Contest, context: CaseContext, candidate: Candidate, lines: list[SetLine], best: str | None
) -> Record:
    name = candidate.name
    for line in lines:
        if name in line.failed:
            failure = line.failed[name]
            return Record(
                context.case, contest.case.rule, name, failure.status, failure.reason,
                failed_check=failure.failed_check,
            )  # fmt: skip
    try:
        peak = measure_peak(contest.pool, context, candidate)
    except WorkerFailed as failure:
        return Record(
            context.case, contest.case.rule, name, failure.status, failure.reason, failed_check=failure.check
        )
    record = timed_record(context, contest.case, candidate, lines, contest.pool.options, best, peak)
    if record.limit_share is None and contest.scale.problem:
        return replace(record, notes=[*record.notes, contest.scale.problem])
    return record
