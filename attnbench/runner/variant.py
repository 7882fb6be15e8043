"""The case beside a case: a small one of other lengths, on which contenders are checked first.

It finds those that are right at known shapes only, and shows in a high precision what a low one would hide.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import wait

import numpy as np

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.variant import variant_case
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, WEIGHTS
from attnbench.plugins.registry import Entry
from attnbench.runner.check import MismatchFound, check_draws, give_draw, score
from attnbench.runner.context import CaseContext, open_context
from attnbench.runner.examine import examine_plain, prepare_worker
from attnbench.runner.link import VerifierFailed, WorkerFailed, WorkerLink
from attnbench.runner.pool import WorkerPool
from attnbench.stats.protocol import ORACLE_FLOPS
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.rule import Rule

Entries = list[Entry[Backend]]


def passing_variant(
    pool: WorkerPool,
    case: Case,
    rule: Entry[Rule],
    operation_source: Source,
    entries: Entries,
    memory_limit_bytes: int,
    failed: Callable[[str, WorkerFailed], None],
) -> Entries:
    """Those that are right on a case beside this one; ``failed`` is told of the others, in order.

    What compiles is not asked: it would take as long again. Nor is anybody where there is no such case, where
    the verifier gives up on it, or where a backend says that it doesn't support it.
    """
    outcomes: dict[str, WorkerFailed] = {}
    asked = [entry for entry in entries if not entry.record.compiles]
    for group in _by_precision(asked):
        near = variant_case(
            case, rule.record, group[0].record.dtypes, np.random.default_rng(secrets.randbits(63))
        )
        if near is None:
            continue
        opening = rm.OpenCase(
            case_id(near), rule.source, secrets.randbits(63), 0, ORACLE_FLOPS,
            pool.options.without, operation_source,
        )  # fmt: skip
        try:
            with open_context(pool.verifier, opening, near.threads, memory_limit_bytes) as context:
                examine_plain(pool, context)
                if any(_gives_weights(pool, near, entry) for entry in group):
                    _weigh_plain(pool, context)
                outcomes |= _check_all(pool, context, group)
        except VerifierFailed:
            if not pool.verifier.alive:
                raise
    for entry in entries:
        if entry.name in outcomes:
            failed(entry.name, outcomes[entry.name])
    return [entry for entry in entries if entry.name not in outcomes]


def _by_precision(entries: Entries) -> list[Entries]:
    """Those that can do float32, and those that can't: they are checked on different cases."""
    groups = [[e for e in entries if ("float32" in e.record.dtypes) is can] for can in (True, False)]
    return [group for group in groups if group]


def _check_all(pool: WorkerPool, context: CaseContext, entries: Entries) -> dict[str, WorkerFailed]:
    futures = {entry.name: pool.executor.submit(_check, pool, context, entry) for entry in entries}
    wait(futures.values())
    found = {name: future.result() for name, future in futures.items()}
    return {name: failure for name, failure in found.items() if failure is not None}


def _check(pool: WorkerPool, context: CaseContext, entry: Entry[Backend]) -> WorkerFailed | None:
    """Why a backend is wrong there; None where it's right, or where it says that it can't."""
    try:
        prepared_worker, _ = prepare_worker(pool, context, entry, pool.all_cpus)
        try:
            check_draws(pool, context, prepared_worker, entry, range(len(context.draws)))
            if _gives_weights(pool, parse_case(context.case), entry):
                _check_weights(pool, context, prepared_worker, entry.name)
        finally:
            prepared_worker.kill()
    except MismatchFound as failure:
        families = tuple(f if f == WEIGHTS else f"near:{f}" for f in failure.families)
        return MismatchFound(_on(context, failure), None, families, failure.check, case=context.case)
    except WorkerFailed as failure:
        if failure.status == "unsupported":
            return None
        return WorkerFailed(failure.status, _on(context, failure), failure.check, context.case)
    return None


def _gives_weights(pool: WorkerPool, case: Case, entry: Entry[Backend]) -> bool:
    """Return whether a backend declares weights of such a case; not with dropout."""
    wanted = WEIGHTS not in pool.options.without and case.operation == "attention" and not case.dropout
    return wanted and entry.record.weights is not None


def _weigh_plain(pool: WorkerPool, context: CaseContext) -> None:
    prepared_worker, _ = prepare_worker(pool, context, None, pool.all_cpus)
    try:
        give_draw(prepared_worker, context.draws[0], pool.options.timeout_s)
        _scored_weights(pool, context, prepared_worker, PLAIN)
    finally:
        prepared_worker.kill()


def _check_weights(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str) -> None:
    """Have the attention weights of a backend compared on the first draw, which is an ordinary one.

    Raises:
        MismatchFound: they are wrong. WorkerFailed: there are none.
    """
    try:
        guarded = "guards" not in pool.options.without
        give_draw(link, context.draws[0], pool.options.timeout_s, guarded=guarded)
        problem = _scored_weights(pool, context, link, name)
        check: Check = "weights"
    except WorkerFailed as failure:
        if failure.status != "mismatch":
            raise
        problem, check = failure.reason, failure.check
    if problem:
        raise MismatchFound(f"the weights: {problem}", None, (WEIGHTS,), check)


def _scored_weights(pool: WorkerPool, context: CaseContext, link: WorkerLink, who: str) -> str:
    weights, timeout_s = m.Compute("weights"), pool.options.timeout_s
    return score(link, context.verifier, who, 0, timeout_s, weights, "weights")[0].problem


def _on(context: CaseContext, failure: WorkerFailed) -> str:
    return f"on a case beside it, {context.case}: {failure.reason}"
