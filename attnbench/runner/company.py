"""Ask if sequences have the same bits alone and in other company. It is a fact, and never a failure."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
THREADS = (1, 2)
"""With which a batch is asked, where a machine has so many cores."""


def batch_invariant(pool: WorkerPool, context: CaseContext, entry: Entry[Backend]) -> BatchInvariant:
    """Return whether each sequence of a batch has the same bits in other company, with one and two threads.

    Return "" where it is not asked (a batch of one sequence, gradients, a backend that compiles), and where
    the backend does not take the other batches.
    """
    case = parse_case(context.case)
    if not has_company(case) or entry.record.compiles:
        return ""
    try:
        same = [
            _same_bits(pool, context, entry, threads)
            for threads in company_threads([case], pool) or (case.threads,)
        ]
    except WorkerFailed:
        return ""
    return "yes" if all(same) else "one thread" if same[:1] == [True] else "no"


def has_company(case: Case) -> bool:
    """Return whether bits of a sequence could depend on others."""
    return case.B > 1 and bool(case.batch) and case.pass_ == "forward"


def company_threads(cases: Iterable[Case], pool: WorkerPool) -> tuple[int, ...]:
    """Return with how many threads batches are asked, so that servers can be there; () where none is.

    A live comparison asks with those of its cases alone: its sides have servers of their own.
    """
    asked = any(has_company(case) and case.on_host for case in cases) and not pool.live
    return tuple(number for number in THREADS if asked and number <= len(pool.all_cpus))


def companies(case: Case) -> list[tuple[int, ...]]:
    """Return the batches to compute besides the case's own, by the numbers of their sequences.

    One sequence of each length alone, since what a kernel does with a sequence follows from its length; and
    all in reverse order, so that each has other neighbours, unless masks are drawn by the place in a batch.
    """
    lengths = parse_batch(case.batch)
    alone = {pair: (number,) for number, pair in enumerate(lengths) if all(pair)}
    return [*alone.values(), *([] if case.mask.is_drawn else [tuple(reversed(range(case.B)))])]


def _same_bits(pool: WorkerPool, context: CaseContext, entry: Entry[Backend], threads: int) -> bool:
    """Compute a batch and its sequences in other company; return whether all bits are the same."""
    case = replace(parse_case(context.case), threads=threads)
    worker, whole = None, list[list[bytes]]()
    try:
        for numbers in (tuple(range(case.B)), *companies(case)):
            own = case if not whole else chosen(case, numbers)
            opening = msgspec.structs.replace(context.opening, case=case_id(own))
            asked = replace(context, opening=opening, threads=threads, pools=None)
            worker, _ = prepare_worker(pool, asked, entry, worker=worker)
            drawn, fd = context.verifier.ask(rm.GetDraw(DRAW, chosen=numbers), rm.Arrays)
            try:
                give_draw(worker, ArrayBlock(drawn.arrays, fd), fresh=True)
            finally:
                os.close(fd)
            found = _outputs(worker, context, own)
            whole = whole or found
            if found != [whole[number] for number in numbers]:
                return False
    finally:
        if worker is not None:
            worker.kill()
    return True


def _outputs(link: WorkerLink, context: CaseContext, case: Case) -> list[list[bytes]]:
    """Have a worker compute; return the bits of each output, by sequence."""
    answer, fd = link.ask(m.Compute(), m.Outputs)
    if fd < 0 or len(answer.outputs) != 1:
        raise WorkerFailed("crashed", "the worker answered without its outputs")
    try:
        stored = mapped(fd, answer.outputs[0])
    finally:
        os.close(fd)
    storage, found = storage_of(case), [list[bytes]() for _ in range(case.B)]
    placed = placed_case(case, context.opening.timed_entropy, (), DRAW)
    for specs, tensors in held_outputs(case, storage):
        held: list[Stored] = [stored[spec.name] for spec in tensors]
        for own, array in zip(found, storage.take(placed, specs, held), strict=True):
            own.append(array.tobytes())
    return found
