"""Ask if a sequence of a batch has the same bits alone as in company. It is a fact, and never a failure."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.places import placed_case
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.shared_memory import Stored, mapped
from attnbench.plugins.registry import Entry
from attnbench.runner.context import ArrayBlock, CaseContext, give_draw, prepare_worker
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import WorkerFailed, WorkerLink
from attnbench.types.backend import Backend
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case
from attnbench.types.problem import chosen, held_outputs
from attnbench.types.record import BatchInvariant
from attnbench.types.storage import storage_of

DRAW = 0
"""An ordinary draw."""


def batch_invariant(
    pool: WorkerPool, context: CaseContext, link: WorkerLink, entry: Entry[Backend]
) -> BatchInvariant:
    """Compute a batch, and its first sequence with queries and keys alone; return whether bits are the same.

    Return "" where it is not asked (a batch of one sequence, gradients, a backend that compiles), and where
    the backend does not take the sequence alone. link: a worker that has prepared the backend for the case.
    """
    case = parse_case(context.case)
    if case.B == 1 or not case.batch or case.pass_ != "forward" or entry.record.compiles:
        return ""
    number = next(n for n, (queries, keys) in enumerate(parse_batch(case.batch)) if queries and keys)
    give_draw(link, context.draws[DRAW])
    together = _outputs(link, context, case, number)
    opening = msgspec.structs.replace(context.opening, case=case_id(chosen(case, (number,))))
    drawn, fd = context.verifier.ask(rm.GetDraw(DRAW, chosen=(number,)), rm.Arrays)
    try:
        worker, _ = prepare_worker(pool, replace(context, opening=opening, pools=None), entry)
        try:
            give_draw(worker, ArrayBlock(drawn.arrays, fd), fresh=True)
            apart = _outputs(worker, context, parse_case(opening.case), 0)
        finally:
            worker.kill()
    except WorkerFailed:
        return ""
    finally:
        os.close(fd)
    return "yes" if together == apart else "no"


def _outputs(link: WorkerLink, context: CaseContext, case: Case, number: int) -> list[bytes]:
    """Have a worker compute; return the bits of each output of a sequence."""
    answer, fd = link.ask(m.Compute(), m.Outputs)
    if fd < 0 or len(answer.outputs) != 1:
        raise WorkerFailed("crashed", "the worker answered without its outputs")
    try:
        stored = mapped(fd, answer.outputs[0])
    finally:
        os.close(fd)
    storage, found = storage_of(case), list[bytes]()
    placed = placed_case(case, context.opening.timed_entropy, context.opened.stress_inputs, DRAW)
    for specs, tensors in held_outputs(case, storage):
        held: list[Stored] = [stored[spec.name] for spec in tensors]
        found.append(storage.take(placed, specs, held)[number].tobytes())
    return found
