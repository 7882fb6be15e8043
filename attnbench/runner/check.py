"""The check of a case: prepare every backend, compare its outputs, trace a call, and warm up."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

import numpy as np

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.variant import variant_case
from attnbench.inputs.kinds import DELIVERIES, GRADED, STRIDED
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, WEIGHTS
from attnbench.plugins.registry import Entry
from attnbench.runner.context import CaseContext, What, give_draw, open_context, prepare_worker, score
from attnbench.runner.link import VerifierFailed, VerifierLink, WorkerFailed, WorkerLink
from attnbench.runner.pool import WorkerPool
from attnbench.stats.protocol import ORACLE_FLOPS, can_be_forked
from attnbench.types.backend import Backend
from attnbench.types.case import Case, output_shape
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.operation import operation_of
from attnbench.types.record import Accuracy, CandidatePlan, DropoutNumbers
from attnbench.types.rule import Rule
from attnbench.types.words import clean

MANY, MANY_BYTES = 256, 64 * 1024**2
"""A worker hands over at most so many outputs at once; a longer list would not fit into a message."""

_ANEW_BELOW_NS = 100_000_000

_COUNT = re.compile(r" x\d+$")

T = TypeVar("T")
Entries = list[Entry[Backend]]
Failures = dict[str, WorkerFailed]


class MismatchFound(WorkerFailed):
    """An output is wrong. accuracy (with dropout: dropout) says by how much, families on which inputs."""

    def __init__(
        self,
        reason: str,
        accuracy: Accuracy | None,
        families: tuple[str, ...],
        check: Check,
        dropout: DropoutNumbers | None = None,
        case: str = "",
    ) -> None:
        super().__init__("mismatch", reason, check, case)
        self.accuracy = accuracy
        self.families = families
        self.dropout = dropout


@dataclass(frozen=True)
class Candidate:
    """A backend that passed the check of a case.

    plan: what the check found. Its counts are 0 until :func:`attnbench.runner.plan.plan_candidates` fills
    them in. peak_bytes: the extra memory of one call; None where the system does not tell. prepared_worker:
    to be forked by repetitions; None if each prepares the backend anew, or it cannot be forked.
    """

    entry: Entry[Backend]
    plan: CandidatePlan
    peak_bytes: int | None = None
    prepared_worker: WorkerLink | None = None

    @property
    def name(self) -> str:
        """The name of the backend; in a live comparison with its side."""
        return self.entry.name

    def let_go(self) -> None:
        """End its prepared worker."""
        if self.prepared_worker is not None:
            self.prepared_worker.kill()


def kernel_of(ran: Sequence[str], backend: Backend, others: Iterable[Backend]) -> str:
    """Return the name of the other backend whose kernel is among the operations that ran, or "".

    A mark that the backend declares too is its own. The first of several that ran counts.
    """
    owners = {mark: other.name for other in others if other.name != backend.name for mark in other.marks}
    names = (_COUNT.sub("", text) for text in ran)
    return next((owners[name] for name in names if name in owners and name not in backend.marks), "")


def check_reference(pool: WorkerPool, context: CaseContext, *, weights: bool = False) -> None:
    """Compute the plain reference on every draw, so that the verifier knows the error of the dtype.

    weights: its attention weights too.

    Raises:
        WorkerFailed: it could not be computed, so nothing can be judged on this case.
    """
    case = parse_case(context.case)
    if operation_of(case).reference is None:
        return
    worker, _ = prepare_worker(pool, context, None)

    def compute(index: int, how: m.Compute, what: What = "output") -> None:
        score(worker, context.verifier, PLAIN, index, pool.options.timeout_s, how, what)

    try:
        for index, draw in enumerate(context.draws):
            give_draw(worker, draw, pool.options.timeout_s)
            if case.pass_ != "forward":
                compute(index, m.Compute("exact"), "exact")
            compute(index, m.Compute())
            if weights and index == 0:
                compute(index, m.Compute("weights"), "weights")
    finally:
        worker.kill()


def check_all(
    pool: WorkerPool,
    context: CaseContext,
    entries: Entries,
    failed: Callable[[str, WorkerFailed], None],
    begun: Callable[[str], None],
) -> list[Candidate]:
    """Check backends, as many at once as there are cores; return those that passed, in the given order.

    Backends that compile come first. ``failed`` is called for each that fails, from this thread, in the
    given order; ``begun`` from the threads that check.
    """

    def check(entry: Entry[Backend]) -> Candidate:
        begun(entry.name)
        return _check_backend(pool, context, entry)

    slow_first = sorted(entries, key=lambda entry: not entry.record.compiles)
    passed, failures = _each(pool, slow_first, check, Candidate.let_go)
    for entry in entries:
        if entry.name in failures:
            failed(entry.name, failures[entry.name])
    return [passed[entry.name] for entry in entries if entry.name in passed]


def _each(
    pool: WorkerPool,
    entries: Entries,
    check: Callable[[Entry[Backend]], T],
    undo: Callable[[T], None] = lambda result: None,
) -> tuple[dict[str, T], Failures]:
    """Check entries at the same time; return the results and the failures by name.

    Where anything else than a worker fails, results are undone and it is raised, once all checks have ended:
    who catches it closes what the checks use.
    """
    futures = {entry.name: pool.executor.submit(check, entry) for entry in entries}
    wait(futures.values())
    failures = {name: failure for name, future in futures.items() if (failure := future.exception())}
    results = {name: future.result() for name, future in futures.items() if name not in failures}
    for failure in failures.values():
        if not isinstance(failure, WorkerFailed):
            for result in results.values():
                undo(result)
            raise failure
    return results, {name: one for name, one in failures.items() if isinstance(one, WorkerFailed)}


def _check_backend(pool: WorkerPool, context: CaseContext, entry: Entry[Backend]) -> Candidate:
    """Prepare one backend, have all its outputs judged, and warm it up.

    If timed workers are to be forked from the prepared one, it makes one call, so that what the first call
    creates exists, and the rest of the check runs in a fork of it.

    Raises:
        WorkerFailed: with the status and the reason of its record; its prepared worker is gone.
    """
    worker, prepared = prepare_worker(pool, context, entry)
    fresh = can_be_forked(entry.record, parse_case(context.case))
    try:
        first_ns = _check_draw(pool, context, worker, entry.name, 0)
        # Forks of one prepared process share its memory layout. Identical ones were found up to 9 % apart,
        # each alike in all its forks. So only what is slow to prepare is forked, and no side of a live
        # comparison.
        anew = fresh and (bool(entry.side) or prepared.ns + first_ns <= _ANEW_BELOW_NS)
        forks = fresh and not anew and pool.options.timed
        link = worker.fork(timed=True, cpus=pool.all_cpus) if forks else worker
        try:
            rest = _check_rest(pool, context, link, entry)
        finally:
            if forks:
                link.kill()
    except BaseException:
        worker.kill()
        raise
    if not forks:
        worker.kill()
    judged = rest.judged
    found = CandidatePlan(
        calls=0,
        samples=0,
        warm_calls=0,
        sets=0,
        accuracy=judged.accuracy,
        prepare_ms=prepared.ns / 1e6,
        first_call_ms=first_ns / 1e6,
        warmup_ms=[ns / 1e6 for ns in rest.warmup_ns],
        fresh=fresh,
        anew=anew,
        notes=[*prepared.notes, *rest.notes],
        ran=rest.ran,
        parts=judged.parts,
        dropout=judged.dropout,
    )
    return Candidate(entry, found, rest.peak_bytes, worker if forks else None)


@dataclass(frozen=True)
class _Rest:
    """The findings of a check after its first draw: verdict, warm-up trace, memory, what ran, notes."""

    judged: rm.Judged
    warmup_ns: tuple[int, ...] = ()
    peak_bytes: int | None = None
    ran: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _check_rest(pool: WorkerPool, context: CaseContext, link: WorkerLink, entry: Entry[Backend]) -> _Rest:
    """Check all draws but the first, warm up, measure the memory of a call, and trace one."""
    timeout_s, timed = pool.options.timeout_s, pool.options.timed
    # Where nothing will be timed, the secret draws are part of the check.
    draws = context.check_draws if timed else len(context.draws)
    judged = check_draws(pool, context, link, entry, range(1, draws))
    rest = _Rest(judged)
    if timed:
        # The last draw of the check may have arrived in another way than those that are timed.
        give_draw(link, context.draws[context.timed_draws[0]], timeout_s, fresh=True)
        warmup_ns = link.ask(m.WarmUp(), m.Warmed, timeout_s)[0].trace_ns
        # Afterwards its allocator returns large arrays at once.
        peak_bytes = link.ask(m.MeasureMemory(), m.PeakMemory, timeout_s)[0].bytes
        rest = _Rest(judged, warmup_ns, peak_bytes)
    # Last, because a traced worker is timed no more, and may end.
    try:
        traced, _ = link.ask(m.TraceCall(), m.Traced, timeout_s)
    except WorkerFailed as failure:
        return replace(rest, notes=[clean(f"the operations of a call are not known: {failure.reason}")])
    notes = [clean(traced.problem)] if traced.problem else []
    return replace(rest, ran=[clean(text) for text in traced.ran], notes=notes)


def _check_draw(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str, index: int) -> int:
    """Have the output on one draw compared; return the ns of the call."""
    _give_checked(pool, context, link, index)
    scored, ns = score(link, context.verifier, name, index, pool.options.timeout_s)
    if scored.problem:
        raise MismatchFound(scored.problem, None, (context.family(index),), scored.check)
    return ns


def _give_checked(pool: WorkerPool, context: CaseContext, link: WorkerLink, index: int) -> None:
    """Give a worker a draw of the check, in the way that its family arrives."""
    family = context.family(index)
    delivery = family if family in DELIVERIES else ""
    guarded = "guards" not in pool.options.without
    give_draw(link, context.draws[index], pool.options.timeout_s, guarded=guarded, delivery=delivery)


def _not_delivered(backend: Backend) -> tuple[str, ...]:
    """Return the deliveries that a backend is not given: it declares so, or would compile for them.

    A backend without a backward pass gets no inputs that require gradients.
    """
    if backend.compiles:
        return DELIVERIES
    graded = () if "backward" in backend.passes else (GRADED,)
    return (STRIDED, *graded) if backend.needs_contiguous else graded


def check_draws(
    pool: WorkerPool, context: CaseContext, link: WorkerLink, entry: Entry[Backend], draws: range
) -> rm.Judged:
    """Have outputs on some draws compared; return the verdict on all of them.

    Raises:
        MismatchFound: not passed. WorkerFailed: a call failed, or its output is plainly wrong.
    """
    name, left_out = entry.name, list(_not_delivered(entry.record))
    for index in draws:
        family = context.family(index)
        if family in left_out:
            continue
        try:
            _check_draw(pool, context, link, name, index)
        except WorkerFailed as failure:
            if family != GRADED or failure.status != "unsupported":
                raise
            left_out.append(family)
    if context.calls:
        _tally_calls(pool, context, link, name, draws[-1])
    judged, _ = context.verifier.ask(rm.Judge(name, tuple(left_out)), rm.Judged)
    if judged.problem:
        raise MismatchFound(judged.problem, judged.accuracy, judged.failed, judged.check, judged.dropout)
    return judged


def _tally_calls(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str, index: int) -> None:
    """Have outputs of many calls on the draw that a worker holds tallied, some at a time."""
    case, left = parse_case(context.case), context.calls
    at_once = max(1, min(MANY, MANY_BYTES // max(1, prod(output_shape(case)) * case.item_bytes)))
    while left > 0:
        count = min(left, at_once)
        many = m.Compute(count=count)
        scored, _ = score(link, context.verifier, name, index, pool.options.timeout_s, many, "calls")
        if scored.problem:
            raise WorkerFailed("mismatch", scored.problem, scored.check)
        left -= count


def check_variant(
    pool: WorkerPool,
    verifier: VerifierLink,
    case: Case,
    rule: Entry[Rule],
    operation_source: Source,
    entries: Entries,
    memory_limit_bytes: int,
) -> Failures:
    """Check backends on a variant case: a small case of other lengths; return those that failed.

    It detects backends that are right at known shapes only, and shows in a high precision what a low one
    would hide. Backends that compile are not checked, since they would take as long again. Nor is any where
    there is no such case, where the verifier cannot solve it, or where a backend does not support it.
    """
    failures: Failures = {}
    checked = [entry for entry in entries if not entry.record.compiles]
    for precise in (True, False):
        group = [entry for entry in checked if ("float32" in entry.record.dtypes) is precise]
        rng = np.random.default_rng(secrets.randbits(63))
        variant = variant_case(case, rule.record, group[0].record.dtypes, rng) if group else None
        if variant is None:
            continue
        opening = rm.OpenCase(
            case_id(variant), rule.source, secrets.randbits(63), 0, ORACLE_FLOPS,
            pool.options.without, operation_source,
        )  # fmt: skip
        try:
            with open_context(verifier, opening, variant.threads, memory_limit_bytes) as context:
                weighed = [entry.name for entry in group if _gives_weights(pool, variant, entry.record)]
                check_reference(pool, context, weights=bool(weighed))
                failures |= _check_group(pool, context, group, weighed)
        except VerifierFailed:
            if not verifier.alive:
                raise
    return failures


def _gives_weights(pool: WorkerPool, case: Case, backend: Backend) -> bool:
    """Return whether a backend declares weights for a case; never with dropout."""
    wanted = WEIGHTS not in pool.options.without and case.operation == "attention" and not case.dropout
    return wanted and backend.weights is not None


def _check_group(
    pool: WorkerPool, context: CaseContext, entries: Entries, weighed: Sequence[str]
) -> Failures:
    def check(entry: Entry[Backend]) -> None:
        worker, _ = prepare_worker(pool, context, entry)
        try:
            check_draws(pool, context, worker, entry, range(len(context.draws)))
            if entry.name in weighed:
                _check_weights(pool, context, worker, entry.name)
        finally:
            worker.kill()

    found: Failures = {}
    for name, failure in _each(pool, entries, check)[1].items():
        reason = f"on the variant case {context.case}: {failure.reason}"
        if isinstance(failure, MismatchFound):
            families = tuple(f if f == WEIGHTS else f"near:{f}" for f in failure.families)
            found[name] = MismatchFound(reason, None, families, failure.check, case=context.case)
        elif failure.status != "unsupported":
            found[name] = WorkerFailed(failure.status, reason, failure.check, context.case)
    return found


def _check_weights(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str) -> None:
    """Have the attention weights of a backend compared on the first draw, which is an ordinary one.

    Raises:
        MismatchFound: they are wrong. WorkerFailed: there are none.
    """
    weights, timeout_s = m.Compute("weights"), pool.options.timeout_s
    check: Check = "weights"
    try:
        _give_checked(pool, context, link, 0)
        scored, _ = score(link, context.verifier, name, 0, timeout_s, weights, "weights")
        problem = scored.problem
    except WorkerFailed as failure:
        if failure.status != "mismatch":
            raise
        problem, check = failure.reason, failure.check
    if problem:
        raise MismatchFound(f"the weights: {problem}", None, (WEIGHTS,), check)
