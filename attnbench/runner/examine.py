"""Before anything is timed: prepare every candidate of a case, check it, trace a call, warm up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass

from attnbench.cases.ids import parse_case
from attnbench.check.reference import counts_in_turn
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN
from attnbench.plugins.registry import Entry
from attnbench.runner.check import check_draw, check_draws, give_checked, give_draw, score
from attnbench.runner.context import CaseContext
from attnbench.runner.link import WorkerFailed, WorkerLink
from attnbench.runner.pool import WorkerPool
from attnbench.stats.protocol import can_be_forked
from attnbench.types.backend import Backend
from attnbench.types.operation import operation_of
from attnbench.types.record import CandidatePlan
from attnbench.types.words import clean

_COUNT = re.compile(r" x\d+$")


@dataclass(frozen=True)
class Ran:
    """The operations of one call in order, names with counts (``bmm x2``). notes: why names are missing."""

    ops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def trace_call(link: WorkerLink, timeout_s: float) -> Ran:
    """Have a prepared worker that has inputs tell what one call runs; where it can't, a note says why.

    The worker is to be timed no more: it may be gone then.
    """
    try:
        traced, _ = link.ask(m.TraceCall(), m.Traced, timeout_s)
    except WorkerFailed as failure:
        return Ran(notes=(clean(f"what ran is not known: {failure.reason}"),))
    return Ran(tuple(clean(text) for text in traced.ran), (clean(traced.problem),) if traced.problem else ())


def kernel_of(ran: Sequence[str], backend: Backend, others: Iterable[Backend]) -> str:
    """The name of the other backend whose kernel is among what ran; "" where there is none.

    A mark that the backend declares too is its own. The first of several that ran counts.
    """
    owners = {mark: other.name for other in others if other.name != backend.name for mark in other.marks}
    names = (_COUNT.sub("", text) for text in ran)
    return next((owners[name] for name in names if name in owners and name not in backend.marks), "")


@dataclass(frozen=True)
class Candidate:
    """A backend that passed the check of a case, its prepared worker ready to be forked.

    plan: what the check found. How the candidate is going to be measured is filled in later: until then the
    counts are 0.
    """

    entry: Entry[Backend]
    prepared_worker: WorkerLink
    plan: CandidatePlan

    @property
    def name(self) -> str:
        """The name of the backend; in a live comparison with its side."""
        return self.entry.name


def prepare_worker(
    pool: WorkerPool,
    context: CaseContext,
    entry: Entry[Backend] | None,
    cpus: tuple[int, ...],
    *,
    pin_allocator: bool = False,
    launch: int = 0,
) -> tuple[WorkerLink, m.Prepared]:
    """A new prepared worker with a backend (None: the plain reference) prepared; return it and what it told.

    launch: which of the servers it comes from.

    Raises:
        WorkerFailed: it could not be prepared; the prepared worker is gone.
    """
    wanted = (context.operation_source, context.rule_source, None if entry is None else entry.source)
    sources = tuple(source for source in wanted if source is not None)
    side = "" if entry is None else entry.side
    prepared_worker = pool.new_worker(
        context.threads, cpus, sources, pin_allocator=pin_allocator, launch=launch, side=side
    )
    request = m.Prepare(
        case=context.case,
        backend=PLAIN if entry is None else entry.record.name,
        backend_source=None if entry is None else entry.source,
        rule_source=context.rule_source,
        parameters=context.parameters.arrays,
        operation_source=context.operation_source,
        memory_limit_bytes=None if entry is None else context.memory_limit_bytes,
    )
    try:
        prepared, _ = prepared_worker.ask(
            request, m.Prepared, pool.options.timeout_s, (context.parameters.fd,)
        )
    except WorkerFailed:
        prepared_worker.kill()
        raise
    return prepared_worker, prepared


def examine_plain(pool: WorkerPool, context: CaseContext) -> None:
    """Compute the plain reference on every draw, so that the verifier knows the error of the dtype.

    Raises:
        WorkerFailed: it could not be computed: nothing can be judged on this case.
    """
    case = parse_case(context.case)
    if operation_of(case).reference is None:
        return
    prepared_worker, _ = prepare_worker(pool, context, None, pool.all_cpus)
    verifier, timeout_s = context.verifier, pool.options.timeout_s
    try:
        for index in range(len(context.draws)):
            give_draw(prepared_worker, context.draws[index], timeout_s)
            if case.pass_ != "forward":
                score(prepared_worker, verifier, PLAIN, index, timeout_s, m.Compute("exact"), "exact")
            score(prepared_worker, verifier, PLAIN, index, timeout_s)
            if counts_in_turn(case, context.family(index)):
                for order in ("in_turn", "backwards"):
                    score(prepared_worker, verifier, PLAIN, index, timeout_s, m.Compute(order))
    finally:
        prepared_worker.kill()


def examine(pool: WorkerPool, context: CaseContext, entry: Entry[Backend]) -> Candidate:
    """Prepare one backend, have all its outputs judged, and warm it up.

    The prepared worker makes one call, so that what is made at the first is there. The rest of
    the check goes on in a fork of it, where it can be forked: workers begin with no more past than one call.

    Raises:
        WorkerFailed: with the status and reason of its record; its prepared worker is gone.
    """
    prepared_worker, prepared = prepare_worker(pool, context, entry, pool.all_cpus)
    fresh = can_be_forked(entry.record, parse_case(context.case))
    try:
        first_ns = check_draw(pool, context, prepared_worker, entry.name, 0)
        if not fresh:
            judged, trace, ran = _examine_rest(pool, context, prepared_worker, entry)
        else:
            fork = prepared_worker.fork(timed=True, cpus=pool.all_cpus)
            try:
                judged, trace, ran = _examine_rest(pool, context, fork, entry)
            finally:
                fork.kill()
    except BaseException:
        prepared_worker.kill()
        raise
    found = CandidatePlan(
        calls=0,
        samples=0,
        warm_calls=0,
        sets=0,
        accuracy=judged.accuracy,
        prepare_ms=prepared.ns / 1e6,
        first_call_ms=first_ns / 1e6,
        warmup_ms=[ns / 1e6 for ns in trace],
        fresh=fresh,
        notes=[*prepared.notes, *ran.notes],
        ran=list(ran.ops),
        parts=judged.parts,
        dropout=judged.dropout,
    )
    return Candidate(entry, prepared_worker, found)


def _examine_rest(
    pool: WorkerPool, context: CaseContext, link: WorkerLink, entry: Entry[Backend]
) -> tuple[rm.Judged, tuple[int, ...], Ran]:
    """All draws but the first, the verdict, the warm-up's trace where there will be timing, what ran."""
    # Where nothing will be timed, the secret draws are part of the check.
    draws = context.check_draws if pool.options.timed else len(context.draws)
    judged = check_draws(pool, context, link, entry, range(1, draws))
    if not pool.options.timed:
        return judged, (), trace_call(link, pool.options.timeout_s)
    # The last of the check may have arrived in another way than those that are timed.
    give_checked(pool, context, link, 0)
    warmed, _ = link.ask(m.WarmUp(), m.Warmed, pool.options.timeout_s)
    # Last: what is traced is timed no more.
    return judged, warmed.trace_ns, trace_call(link, pool.options.timeout_s)


def examine_all(
    pool: WorkerPool,
    context: CaseContext,
    entries: list[Entry[Backend]],
    failed: Callable[[str, WorkerFailed], None],
    begun: Callable[[str], None],
) -> list[Candidate]:
    """Examine backends, as many at once as there are cores, those that compile first.

    ``failed`` is called for each that drops out, from this thread, in the given order; ``begun`` from
    the examining threads. Gives those that passed in the given order.
    """

    def one(entry: Entry[Backend]) -> Candidate | WorkerFailed:
        begun(entry.name)
        try:
            return examine(pool, context, entry)
        except WorkerFailed as failure:
            return failure

    slow_first = sorted(entries, key=lambda entry: not entry.record.compiles)
    futures = {entry.name: pool.executor.submit(one, entry) for entry in slow_first}
    # All of them before any failure is raised: what they use is closed by whoever catches it.
    wait(futures.values())
    outcomes = {name: future.result() for name, future in futures.items() if not future.exception()}
    broken = [failure for future in futures.values() if (failure := future.exception()) is not None]
    if broken:
        for outcome in outcomes.values():
            if isinstance(outcome, Candidate):
                outcome.prepared_worker.kill()
        raise broken[0]
    passed: list[Candidate] = []
    for entry in entries:
        outcome = outcomes[entry.name]
        if isinstance(outcome, Candidate):
            passed.append(outcome)
        else:
            failed(entry.name, outcome)
    return passed
