"""The check of a case: prepare every backend, compare its outputs, trace a call, and warm up."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.variant import variant_cases
from attnbench.inputs.kinds import STRESS_INPUTS
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, WEIGHTS
from attnbench.plugins.registry import Entry
from attnbench.runner.company import batch_invariant
from attnbench.runner.context import (
    CaseContext,
    check_verifier,
    give_draw,
    judging,
    open_context,
    prepare_worker,
    reported_code,
    score,
)
from attnbench.runner.outputs import check_draw, check_draws, give_checked
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import (
    ServerLost,
    VerifierFailed,
    VerifierLink,
    WorkerFailed,
    WorkerKilled,
    WorkerLink,
)
from attnbench.stats.protocol import can_be_forked
from attnbench.types.arithmetic import UNIT, coarser
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import operation_of
from attnbench.types.record import ON_VARIANT, CandidatePlan, CheckResult
from attnbench.types.rule import Rule
from attnbench.types.status import Check
from attnbench.types.words import clean

_ANEW_BELOW_NS = 100_000_000

VARIANTS = 3
"""Variants of a case that backends are checked on, of other classes of lengths."""
MANY_KEYS = 15

_COUNT = re.compile(r" x\d+$")

T = TypeVar("T")
Entries = list[Entry[Backend]]
Failures = dict[str, WorkerFailed]


@dataclass(frozen=True)
class PassedBackend:
    """A backend that passed the check of a case, with what the check found."""

    entry: Entry[Backend]
    found: CheckResult
    peak_bytes: int | None = None
    """The extra memory of one call; None where the system does not tell."""
    prepared_worker: WorkerLink | None = None
    """To be forked by repetitions; None if each prepares the backend anew, or it cannot be forked."""

    @property
    def name(self) -> str:
        """The name of the backend; in a live comparison with its side."""
        return self.entry.name

    def let_go(self) -> None:
        """End its prepared worker."""
        if self.prepared_worker is not None:
            self.prepared_worker.kill()


@dataclass(frozen=True)
class Candidate:
    """A backend that passed the check of a case, and is planned. The other fields are those of the check."""

    entry: Entry[Backend]
    plan: CandidatePlan
    peak_bytes: int | None = None
    prepared_worker: WorkerLink | None = None

    @property
    def name(self) -> str:
        """The name of the backend; in a live comparison with its side."""
        return self.entry.name


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
        WorkerFailed: it could not be computed, so nothing can be judged on this case; or the verifier runs
            other code than this process.
    """
    check_verifier(pool, context)
    case = parse_case(context.case)
    if operation_of(case).reference is None:
        return
    worker, _ = prepare_worker(pool, context, None)
    try:
        for index in range(len(context.draws)):
            with context.for_plain(index) as draw:
                give_draw(worker, draw)
            if case.pass_ != "forward":
                score(worker, context.verifier, PLAIN, index, m.Compute("exact"), "exact")
            score(worker, context.verifier, PLAIN, index)
            if weights and index == 0:
                score(worker, context.verifier, PLAIN, index, m.Compute("weights"), "weights")
    finally:
        worker.kill()


def check_all(
    pool: WorkerPool,
    context: CaseContext,
    entries: Entries,
    variant: Mapping[str, rm.Judged],
    begun: Callable[[str], None],
    *,
    together: bool,
    alone: bool,
) -> tuple[list[PassedBackend], Failures]:
    """Check backends, as many at once as there are cores; return those that passed, and what failed.

    Backends that compile come first; those that passed have the given order. ``begun`` is called from the
    threads that check. variant: what the variant case has shown. together, alone: as of :func:`_each`.
    """

    def check(entry: Entry[Backend]) -> PassedBackend:
        begun(entry.name)
        with judging(context.verifier):
            return CheckUnderWay(pool, context, entry, variant.get(entry.name)).check()

    slow_first = sorted(entries, key=lambda entry: not entry.record.compiles)
    passed, failures = _each(pool, slow_first, check, PassedBackend.let_go, together=together, alone=alone)
    return [passed[entry.name] for entry in entries if entry.name in passed], failures


def _each(
    pool: WorkerPool,
    entries: Entries,
    check: Callable[[Entry[Backend]], T],
    undo: Callable[[T], None] = lambda result: None,
    *,
    together: bool = True,
    alone: bool = False,
) -> tuple[dict[str, T], Failures]:
    """Check entries at the same time; return the results and the failures by name.

    together: False to check one at a time. alone: so too, and the one that ends its server is named. Where
    anything else than a worker fails, results are undone and it is raised, once all checks have ended: who
    catches it closes what the checks use.
    """
    futures: dict[str, Future[T]] = {}
    try:
        for entry in entries:
            futures[entry.name] = future = pool.executor.submit(_again_if_killed, check, entry)
            if not together:
                wait([future])
            if alone:
                with named_if_lost(entry.name):
                    _raise_lost(future)
                    pool.end_if_stopped()
        for future in futures.values():
            _raise_lost(future)
        pool.end_if_stopped()
    except Exception:
        wait(futures.values())
        for future in futures.values():
            if future.exception() is None:
                undo(future.result())
        raise
    failures = {name: failure for name, future in futures.items() if (failure := future.exception())}
    results = {name: future.result() for name, future in futures.items() if name not in failures}
    return results, {name: one for name, one in failures.items() if isinstance(one, WorkerFailed)}


def _raise_lost(future: Future[T]) -> None:
    """Wait for a check, and raise what is not the failure of its worker."""
    failure = future.exception()
    if failure is not None and not isinstance(failure, WorkerFailed):
        raise failure


@contextmanager
def named_if_lost(name: str) -> Iterator[None]:
    """Name the backend that alone runs meanwhile if a server is lost, or a process was stopped."""
    try:
        yield
    except ServerLost as lost:
        raise ServerLost(str(lost), lost.status, name) from lost


def _again_if_killed(check: Callable[[Entry[Backend]], T], entry: Entry[Backend]) -> T:
    try:
        return check(entry)
    except WorkerKilled as failure:
        tell_of_killed(entry.name, failure)
        return check(entry)


def tell_of_killed(name: str, failure: WorkerKilled) -> None:
    """Say on stderr that a backend gets a second try."""
    print(f"attnbench: {name}: its process {failure}; it is asked again", file=sys.stderr)  # noqa: T201


class CheckUnderWay:
    """The check of one backend in progress, in its process. variant: what its variant cases have shown."""

    def __init__(
        self, pool: WorkerPool, context: CaseContext, entry: Entry[Backend], variant: rm.Judged | None
    ) -> None:
        self._pool, self._context, self._entry, self._variant = pool, context, entry, variant
        self._case = parse_case(context.case)
        self._notes: list[str] = []

    def check(self) -> PassedBackend:
        """Prepare the backend, have all its outputs judged, and warm it up.

        If timed workers are to be forked from the prepared one, it makes one call, so that what the first
        call creates exists, and the rest of the check runs in a fork of it.

        Raises:
            WorkerFailed: with the status and the reason of its record; its prepared worker is gone.
        """
        worker, prepared = prepare_worker(self._pool, self._context, self._entry)
        self._notes += prepared.notes
        try:
            first_ns = check_draw(self._pool, self._context, worker, self._entry.name, 0)
            fresh = can_be_forked(self._entry.record, self._case)
            anew = fresh and self._is_prepared_anew(prepared.ns + first_ns)
            forks = fresh and not anew and self._pool.options.timed
            link = worker.fork(timed=True, cpus=self._pool.all_cpus) if forks else worker
            try:
                judged = self._compare(link)
                invariant = batch_invariant(self._pool, self._context, self._entry)
                warmup_ns = self._warm_up(link)
                # Afterwards its allocator returns large arrays at once.
                peak_bytes = link.ask(m.MeasureMemory(peak=self._pool.options.timed), m.PeakMemory)[0].bytes
                # Calls may have imported more.
                code = reported_code(self._pool, self._context, link, self._entry)
                # Last, because a traced worker is timed no more, and may end.
                ran = self._trace(link)
            finally:
                if forks:
                    link.kill()
        except BaseException:
            worker.kill()
            raise
        if not forks:
            worker.kill()
        inexact = self._coarser_of(judged)
        found = CheckResult(
            accuracy=judged.accuracy,
            prepare_ms=prepared.ns / 1e6,
            first_call_ms=first_ns / 1e6,
            warmup_ms=[ns / 1e6 for ns in warmup_ns],
            fresh=fresh,
            anew=anew,
            notes=self._notes,
            ran=ran,
            parts=judged.parts,
            dropout=judged.dropout,
            arithmetic=inexact.arithmetic,
            inexact=inexact.problem,
            batch_invariant=invariant,
            encoding_error=self._context.opened.encoding_error,
            dtype_error=self._context.opened.dtype_error,
            kv_bytes=self._context.opened.kv_bytes,
            code={name: digest for name, digest in code.items() if name.partition(".")[0] != "attnbench"},
        )
        return PassedBackend(self._entry, found, peak_bytes, worker if forks else None)

    def _is_prepared_anew(self, ns: int) -> bool:
        """Return whether each repetition prepares the backend again, which takes so long with its first call.

        Forks of one prepared process share its memory layout. Identical ones were found up to 9 % apart, each
        alike in all its forks. So only what is slow to prepare is forked, and no side of a live comparison.
        """
        return bool(self._entry.side) or ns <= _ANEW_BELOW_NS

    def _compare(self, link: WorkerLink) -> rm.Judged:
        """Have the outputs of all draws but the first judged, and all together."""
        # Where nothing will be timed, the secret draw is part of the check.
        timed = self._pool.options.timed
        draws = self._context.check_draws if timed else len(self._context.draws)
        judged, notes = check_draws(self._pool, self._context, link, self._entry, range(1, draws))
        self._notes += notes
        return judged

    def _coarser_of(self, judged: rm.Judged) -> rm.Judged:
        """Return that verdict, on the case or its variants, which found the coarser arithmetic."""
        # The variant may have a finer dtype than the case.
        if self._variant is None or not coarser(self._variant.arithmetic, self._case.dtype):
            return judged
        return max(judged, self._variant, key=_coarseness)

    def _warm_up(self, link: WorkerLink) -> tuple[int, ...]:
        """Return the trace of the warm-up, ns per call; nothing where no call is timed."""
        if not self._pool.options.timed:
            return ()
        # The last draw of the check may have arrived in another way than those that are timed.
        give_draw(link, self._context.draws[self._context.pooled_draw], fresh=True)
        # Others warm up at the same time, elsewhere in the pool.
        return link.ask(m.WarmUp(start=secrets.randbits(32)), m.Warmed)[0].trace_ns

    def _trace(self, link: WorkerLink) -> list[str]:
        """Return the operations that one call runs."""
        try:
            traced, _ = link.ask(m.TraceCall(), m.Traced)
        except WorkerFailed as failure:
            traced = m.Traced((), f"the operations of a call are not known: {failure.reason}")
        if traced.problem:
            self._notes.append(clean(traced.problem))
        return [clean(text) for text in traced.ran]


def check_variants(
    pool: WorkerPool,
    verifier: VerifierLink,
    case: Case,
    rule: Entry[Rule],
    opening: rm.OpenCase,
    entries: Entries,
    memory_limit_bytes: int,
    *,
    alone: bool,
) -> tuple[dict[str, rm.Judged], Failures]:
    """Check backends on variants of a case: small cases of other lengths; return what passed, and what
    failed. opening: of the case. alone: as of :func:`_each`.

    They detect backends that are right at known shapes only, and show in a high precision what a low one
    would hide. They share the draws of one check: each has ordinary ones, and some of the stress inputs.
    Backends that compile are not checked, since they would take as long again. Nor is any where there is no
    such case, where the verifier cannot solve it, or where a backend does not support it.
    """
    failures: Failures = {}
    judged: dict[str, rm.Judged] = {}
    checked = [entry for entry in entries if not entry.record.compiles]
    for precise in (True, False):
        group = [entry for entry in checked if ("float32" in entry.record.dtypes) is precise]
        if not group:
            continue
        rng = np.random.default_rng(secrets.randbits(63))
        # Statistics of dropout take many calls.
        count = 1 if case.dropout else VARIANTS
        variants = variant_cases(case, rule.record, group[0].record.dtypes, rng, count)
        asked = _stress_of(variants, rng)
        with _kept_workers() as workers:
            for number, variant in enumerate(variants):
                left_out = [stress.name for stress in STRESS_INPUTS[1:] if stress.name not in asked[number]]
                opened = msgspec.structs.replace(
                    opening,
                    case=case_id(variant),
                    timed_entropy=secrets.randbits(63),
                    timed_draws=0,
                    without=(*pool.options.without, *left_out),
                    # In half precision the limits of few rows hang on chance.
                    share=len(variants) if precise else 1,
                )
                left = [entry for entry in group if entry.name not in failures]
                try:
                    with open_context(verifier, opened, variant.threads, memory_limit_bytes) as context:
                        weighed = left if number == 0 else []
                        names = [one.name for one in weighed if _gives_weights(pool, variant, one.record)]
                        check_reference(pool, context, weights=bool(names))
                        passed, failed = _check_group(pool, context, left, names, workers, alone=alone)
                except VerifierFailed:
                    if not verifier.alive:
                        raise
                    continue
                for name, found in passed.items():
                    judged[name] = max(judged.get(name, found), found, key=_coarseness)
                failures |= failed
    return judged, failures


def _stress_of(variants: Sequence[Case], rng: np.random.Generator) -> list[set[str]]:
    """Share the kinds of stress inputs among variants; return those of each.

    Where there are fewer keys than ``MANY_KEYS`` some kinds make no sense, so that others get them.
    """
    asked: list[set[str]] = [set() for _ in variants]
    many = [at for at, variant in enumerate(variants) if variant.Lk >= MANY_KEYS] or range(len(variants))
    for place in rng.permutation(range(1, len(STRESS_INPUTS))):
        if variants:
            asked[min(many, key=lambda at: len(asked[at]))].add(STRESS_INPUTS[place].name)
    return asked


def _coarseness(judged: rm.Judged) -> float:
    return UNIT.get(judged.arithmetic, 0.0)


@contextmanager
def _kept_workers() -> Iterator[dict[str, WorkerLink]]:
    """Give a place for workers by backend, which end with the block."""
    workers: dict[str, WorkerLink] = {}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.kill()


def _gives_weights(pool: WorkerPool, case: Case, backend: Backend) -> bool:
    """Return whether a backend declares weights for a case; never with dropout."""
    wanted = WEIGHTS not in pool.options.without and case.operation == "attention" and not case.dropout
    wanted = wanted and not case.batch and not is_encoded(case)
    return wanted and backend.weights is not None


def _check_group(
    pool: WorkerPool,
    context: CaseContext,
    entries: Entries,
    weighed: Sequence[str],
    workers: dict[str, WorkerLink],
    *,
    alone: bool,
) -> tuple[dict[str, rm.Judged], Failures]:
    """Check backends on the open variant case.

    workers: those that have prepared a backend for another variant; that of one that passes is kept there.
    """
    # The cause comes first, since a table cuts what is long.
    case, where = parse_case(context.case), f" ({ON_VARIANT} {context.case})"

    def check(entry: Entry[Backend]) -> rm.Judged:
        worker, _ = prepare_worker(pool, context, entry, worker=workers.pop(entry.name, None))
        try:
            with judging(context.verifier):
                judged, _ = check_draws(pool, context, worker, entry, range(len(context.draws)))
                if entry.name in weighed:
                    _check_weights(pool, context, worker, entry.name)
        except BaseException:
            worker.kill()
            raise
        if case.on_host:
            workers[entry.name] = worker
        else:
            # Each process would hold memory of the device.
            worker.kill()
        problem = judged.problem + where if judged.problem else ""
        return msgspec.structs.replace(judged, problem=problem)

    found: Failures = {}
    passed, failures = _each(pool, entries, check, alone=alone)
    for name, failure in failures.items():
        if failure.status == "unavailable":
            found[name] = failure  # whatever the case
        elif failure.status != "unsupported":
            failed_on = [each if each == WEIGHTS else f"variant:{each}" for each in failure.failed_on]
            failure.reason, failure.case, failure.failed_on = failure.reason + where, context.case, failed_on
            # Numbers of the variant case would be taken for those of the case.
            failure.accuracy = failure.dropout = None
            found[name] = failure
    return passed, found


def _check_weights(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str) -> None:
    """Have the attention weights of a backend compared on the first draw, which is an ordinary one.

    Raises:
        WorkerFailed: they are wrong, or there are none.
    """
    check: Check = "weights"
    try:
        give_checked(pool, context, link, 0)
        scored, _ = score(link, context.verifier, name, 0, m.Compute("weights"), "weights")
        problem = scored.problem
    except WorkerFailed as failure:
        if failure.status != "mismatch":
            raise
        problem, check = failure.reason, failure.check
    if problem:
        raise WorkerFailed("mismatch", f"the weights: {problem}", check, failed_on=(WEIGHTS,))
