"""Having the outputs of a worker compared: draw by draw, in every way that inputs arrive, and the verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Literal

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import DELIVERIES, GRADED, STRIDED
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import Entry
from attnbench.runner.context import ArrayBlock, CaseContext
from attnbench.runner.link import VerifierFailed, VerifierLink, WorkerFailed, WorkerLink
from attnbench.runner.pool import WorkerPool
from attnbench.types.backend import Backend
from attnbench.types.case import output_shape
from attnbench.types.checks import Check
from attnbench.types.record import Accuracy, DropoutNumbers

MANY, MANY_BYTES = 256, 64 * 1024**2
"""Outputs that a worker hands over at once, at most: of more the list would not fit into a message."""

_ONE_CALL = m.Compute()


def give_draw(
    link: WorkerLink,
    draw: ArrayBlock,
    timeout_s: float,
    *,
    fresh: bool = False,
    junk_bytes: int = 0,
    guarded: bool = False,
    delivery: str = "",
) -> None:
    """Give a worker inputs, into the storage of those before unless ``fresh``; ``guarded``: between NaN.

    delivery: how they arrive, see :mod:`attnbench.worker.prepared`.
    """
    request = m.Activations(draw.arrays, fresh, junk_bytes, guarded, delivery)
    link.ask(request, m.Done, timeout_s, (draw.fd,))


def score(
    link: WorkerLink,
    verifier: VerifierLink,
    who: str,
    index: int,
    timeout_s: float,
    asked: m.Compute = _ONE_CALL,
    what: Literal["output", "calls", "weights", "exact"] = "output",
) -> tuple[rm.Scored, int]:
    """Have a worker compute, and the verifier compare; return what is wrong, and the ns of the last call."""
    answer, fd = link.ask(asked, m.Outputs, timeout_s)
    if fd < 0 or len(answer.outputs) != asked.count:
        raise WorkerFailed("crashed", "the worker answered without its outputs")
    with compared(verifier, fd):
        scored, _ = verifier.ask(rm.Score(who, index, answer.outputs, what), rm.Scored, fd)
    return scored, answer.ns


@contextmanager
def compared(verifier: VerifierLink, fd: int) -> Iterator[None]:
    """Around asking about outputs in a descriptor, which is closed: what can't be compared is a mismatch."""
    try:
        yield
    except VerifierFailed as failure:
        if not verifier.alive:
            raise
        raise WorkerFailed("mismatch", f"the output can't be compared: {failure}", "output_form") from failure
    finally:
        os.close(fd)


def check_draw(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str, index: int) -> int:
    """Have the output on one draw compared; return the ns of the call."""
    give_checked(pool, context, link, index)
    scored, ns = score(link, context.verifier, name, index, pool.options.timeout_s)
    if scored.problem:
        raise MismatchFound(scored.problem, None, (context.family(index),), scored.check)
    return ns


def give_checked(pool: WorkerPool, context: CaseContext, link: WorkerLink, index: int) -> None:
    """Give a worker a draw of the check, as those of its family arrive."""
    family = context.family(index)
    give_draw(
        link,
        context.draws[index],
        pool.options.timeout_s,
        guarded="guards" not in pool.options.without,
        delivery=family if family in DELIVERIES else "",
    )


def not_delivered(backend: Backend) -> tuple[str, ...]:
    """Deliveries that a backend is not given: it declares that it needs others, or would compile for them.

    A backend without a backward pass gets no inputs that require gradients.
    """
    if backend.compiles:
        return DELIVERIES
    graded = () if "backward" in backend.passes else (GRADED,)
    return (STRIDED, *graded) if backend.needs_contiguous else graded


def check_draws(
    pool: WorkerPool, context: CaseContext, link: WorkerLink, entry: Entry[Backend], draws: range
) -> rm.Judged:
    """Have outputs on some draws compared, and the verdict on all of them.

    Those are left out that arrive in a way that the backend declares not to support.

    Raises:
        MismatchFound: not passed. WorkerFailed: a call failed, or its output is plainly wrong.
    """
    name, left_out = entry.name, list(not_delivered(entry.record))
    for index in draws:
        family = context.family(index)
        if family in left_out:
            continue
        try:
            check_draw(pool, context, link, name, index)
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


class MismatchFound(WorkerFailed):
    """A backend computed something else; accuracy (of dropout: dropout) says by how much, families on which
    inputs."""

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
