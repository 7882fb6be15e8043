"""The case beside a case: a small one of other lengths, on which contenders are checked first.

It finds those that are right at known shapes only, and shows in a high precision what a low one would hide.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import wait

import numpy as np

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.variant import near_case
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, WEIGHTS
from attnbench.plugins.registry import Entry
from attnbench.runner.check import MismatchFound, check_draws, compared, give_draw
from attnbench.runner.context import Brief, open_brief
from attnbench.runner.examine import examine_plain, prepare_template
from attnbench.runner.link import VerifierFailed, WorkerFailed, WorkerLink
from attnbench.runner.pool import Workshop
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.rule import Rule

Entries = list[Entry[Backend]]


def pass_near(
    shop: Workshop,
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
        near = near_case(
            case, rule.record, group[0].record.dtypes, np.random.default_rng(secrets.randbits(63))
        )
        if near is None:
            continue
        opening = rm.OpenCase(
            case_id(near), rule.source, secrets.randbits(63), 0, shop.options.oracle_flops,
            shop.options.without, operation_source,
        )  # fmt: skip
        try:
            with open_brief(shop.verifier, opening, near.threads, memory_limit_bytes) as brief:
                examine_plain(shop, brief)
                if any(_gives_weights(shop, near, entry) for entry in group):
                    _weigh_plain(shop, brief)
                outcomes |= _check_all(shop, brief, group)
        except VerifierFailed:
            if not shop.verifier.alive:
                raise
    for entry in entries:
        if entry.name in outcomes:
            failed(entry.name, outcomes[entry.name])
    return [entry for entry in entries if entry.name not in outcomes]


def _by_precision(entries: Entries) -> list[Entries]:
    """Those that can do float32, and those that can't: they are checked on different cases."""
    groups = [[e for e in entries if ("float32" in e.record.dtypes) is can] for can in (True, False)]
    return [group for group in groups if group]


def _check_all(shop: Workshop, brief: Brief, entries: Entries) -> dict[str, WorkerFailed]:
    futures = {entry.name: shop.pool.submit(_check, shop, brief, entry) for entry in entries}
    wait(futures.values())
    found = {name: future.result() for name, future in futures.items()}
    return {name: failure for name, failure in found.items() if failure is not None}


def _check(shop: Workshop, brief: Brief, entry: Entry[Backend]) -> WorkerFailed | None:
    """Why a backend is wrong there; None where it's right, or where it says that it can't."""
    try:
        template, _ = prepare_template(shop, brief, entry, shop.all_cpus)
        try:
            check_draws(shop, brief, template, entry, range(len(brief.draws)))
            if _gives_weights(shop, parse_case(brief.case), entry):
                _check_weights(shop, brief, template, entry.name)
        finally:
            template.kill()
    except MismatchFound as failure:
        families = tuple(f if f == WEIGHTS else f"near:{f}" for f in failure.families)
        return MismatchFound(_on(brief, failure), None, families, failure.check, case=brief.case)
    except WorkerFailed as failure:
        if failure.status == "unsupported":
            return None
        return WorkerFailed(failure.status, _on(brief, failure), failure.check, brief.case)
    return None


def _gives_weights(shop: Workshop, case: Case, entry: Entry[Backend]) -> bool:
    """Whether a backend declares weights of such a case. Those that it drops at random are not asked for."""
    wanted = WEIGHTS not in shop.options.without and case.operation == "attention" and not case.dropout
    return wanted and entry.record.weights is not None


def _weigh_plain(shop: Workshop, brief: Brief) -> None:
    template, _ = prepare_template(shop, brief, None, shop.all_cpus)
    try:
        give_draw(template, brief.draws[0], shop.options.timeout_s)
        _scored_weights(shop, brief, template, PLAIN)
    finally:
        template.kill()


def _check_weights(shop: Workshop, brief: Brief, link: WorkerLink, name: str) -> None:
    """Have the attention weights of a backend compared on the first draw, which is an ordinary one.

    Raises:
        MismatchFound: they are wrong. WorkerFailed: there are none.
    """
    try:
        guarded = "guards" not in shop.options.without
        give_draw(link, brief.draws[0], shop.options.timeout_s, guarded=guarded)
        problem = _scored_weights(shop, brief, link, name)
        check: Check = "weights"
    except WorkerFailed as failure:
        if failure.status != "mismatch":
            raise
        problem, check = failure.reason, failure.check
    if problem:
        raise MismatchFound(f"the weights: {problem}", None, (WEIGHTS,), check)


def _scored_weights(shop: Workshop, brief: Brief, link: WorkerLink, who: str) -> str:
    weights, fd = link.ask(m.ComputeWeights(), m.Output, shop.options.timeout_s)
    if fd < 0:
        raise WorkerFailed("crashed", "answered without its weights")
    with compared(brief.verifier, fd):
        scored, _ = brief.verifier.ask(rm.ScoreWeights(who, 0, weights.parts), rm.Scored, fd)
    return scored.problem


def _on(brief: Brief, failure: WorkerFailed) -> str:
    return f"on a case beside it, {brief.case}: {failure.reason}"
