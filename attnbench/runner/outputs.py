"""Outputs on the draws of a check: how a worker gets each draw, and the verdict on all of them."""

from __future__ import annotations

import os
from math import prod

import msgspec

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import (
    DELIVERIES,
    DROPPED,
    GRADED,
    NORMAL,
    SLICED,
    STRIDED,
    TRANSPOSED,
    TWO_GRAPHS,
    VIEWS,
)
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import Entry
from attnbench.runner.context import ArrayBlock, CaseContext, give_draw, score
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import WorkerFailed, WorkerLink
from attnbench.types.arithmetic import coarser
from attnbench.types.backend import Backend
from attnbench.types.case import output_shape
from attnbench.types.operation import finest_dtype

NUDGED_ELEMENTS = 2048
"""About so many elements show whether errors scatter: a correlation by chance is then below 0.1."""

MANY, MANY_BYTES = 256, 64 * 1024**2
"""A worker hands over at most so many outputs at once; a longer list would not fit into a message."""

READS_BETWEEN_ROWS = (
    "NaN between or behind the rows of strided inputs becomes NaN in the output, other numbers there change "
    "nothing: "
    "a product reads past each row; contiguous inputs mend it"
)
"""oneDNN does so on processors with AMX, in bfloat16 with an odd D."""
CONTIGUOUS_PASS = ". Contiguous inputs pass: read the strides, or declare needs_contiguous"


def check_draw(pool: WorkerPool, context: CaseContext, link: WorkerLink, name: str, index: int) -> int:
    """Have the output on one draw compared; return the ns of the call."""
    give_checked(pool, context, link, index)
    scored, ns = score(link, context.verifier, name, index)
    if scored.problem:
        raise WorkerFailed("mismatch", scored.problem, scored.check, failed_on=(context.stress(index),))
    return ns


def give_checked(pool: WorkerPool, context: CaseContext, link: WorkerLink, index: int) -> None:
    """Give a worker a draw of the check, in the way in which its kind of inputs arrives."""
    stress = context.stress(index)
    delivery = stress if stress in DELIVERIES else ""
    guarded = "guards" not in pool.options.without
    give_draw(link, context.draws[index], guarded=guarded, delivery=delivery)


def not_delivered(backend: Backend) -> tuple[str, ...]:
    """Return the deliveries that a backend is not given: it declares so, or would compile for them.

    A backend without a backward pass gets no inputs that require gradients, and one that does not promise to
    ignore dropped keys no NaN in them.
    """
    given = {
        **dict.fromkeys(VIEWS, not backend.needs_contiguous),
        GRADED: "backward" in backend.passes,
        TWO_GRAPHS: True,
        DROPPED: backend.ignores_dropped,
    }
    return tuple(each for each in DELIVERIES if backend.compiles or not given[each])


def check_draws(
    pool: WorkerPool, context: CaseContext, link: WorkerLink, entry: Entry[Backend], draws: range
) -> tuple[rm.Judged, list[str]]:
    """Have outputs on some draws compared; return the verdict on all of them, and notes.

    Raises:
        WorkerFailed: not passed, or a call failed.
    """
    name, left_out, notes = entry.name, list(not_delivered(entry.record)), list[str]()
    for index in draws:
        stress = context.stress(index)
        if stress in left_out:
            continue
        try:
            check_draw(pool, context, link, name, index)
        except WorkerFailed as failure:
            if stress in (STRIDED, SLICED) and failure.check == "not_finite":
                _check_between_rows(context, link, name, index, failure)
                notes = [READS_BETWEEN_ROWS]
            elif (stress, failure.status) in ((GRADED, "unsupported"), (TRANSPOSED, "error")):
                # Many kernels take any strides but that of features, and an exception misleads nobody.
                left_out.append(stress)
            else:
                raise
    if context.opened.calls:
        _tally_calls(context, link, name, draws[-1])
    declared, dtype = entry.record.computes_in or "", finest_dtype(parse_case(context.case))
    judge = rm.Judge(name, tuple(left_out), declared if coarser(declared, dtype) else "")
    judged, _ = context.verifier.ask(judge, rm.Judged)
    if judged.arithmetic:
        _nudge(context, link, name)
        judged, _ = context.verifier.ask(judge, rm.Judged)
    if judged.problem and not judged.arithmetic:
        problem = judged.problem + (CONTIGUOUS_PASS if set(judged.failed) <= set(VIEWS) else "")
        raise WorkerFailed(
            "mismatch", problem, judged.check,
            failed_on=judged.failed, accuracy=judged.accuracy, dropout=judged.dropout,
        )  # fmt: skip
    return msgspec.structs.replace(judged, arithmetic=judged.arithmetic or judge.arithmetic), notes


def _check_between_rows(
    context: CaseContext, link: WorkerLink, name: str, index: int, failure: WorkerFailed
) -> None:
    """Check a draw of views again, with other numbers than NaN between and behind its rows.

    Raises:
        WorkerFailed: the output is still not finite.
    """
    stress = context.stress(index)
    give_draw(link, context.draws[index], delivery=stress)
    scored, _ = score(link, context.verifier, name, index)
    if scored.problem:
        reason = failure.reason + CONTIGUOUS_PASS
        raise WorkerFailed("mismatch", reason, failure.check, failed_on=(stress,)) from failure


def _nudge(context: CaseContext, link: WorkerLink, name: str) -> None:
    """Have errors on ordinary draws compared with those on nudged ones: those of rounding scatter."""
    elements = prod(output_shape(parse_case(context.case)))
    ordinary = [index for index, stress in enumerate(context.opened.stress_inputs) if stress == NORMAL]
    for index in ordinary[: -(-NUDGED_ELEMENTS // elements)]:
        give_draw(link, context.draws[index])
        score(link, context.verifier, name, index, what="before")
        arrays, fd = context.verifier.ask(rm.GetDraw(index, nudged=True), rm.Arrays)
        try:
            give_draw(link, ArrayBlock(arrays.arrays, fd))
        finally:
            os.close(fd)
        score(link, context.verifier, name, index, what="nudged")


def _tally_calls(context: CaseContext, link: WorkerLink, name: str, index: int) -> None:
    """Have outputs of many calls on the draw that a worker holds tallied, some at a time."""
    case, left = parse_case(context.case), context.opened.calls
    at_once = max(1, min(MANY, MANY_BYTES // max(1, prod(output_shape(case)) * case.item_bytes)))
    while left > 0:
        count = min(left, at_once)
        scored, _ = score(link, context.verifier, name, index, m.Compute(count=count), "calls")
        if scored.problem:
            raise WorkerFailed("mismatch", scored.problem, scored.check)
        left -= count
