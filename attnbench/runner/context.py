"""An open case: the arrays that belong to it, and what workers and the verifier are asked about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import NORMAL
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN
from attnbench.plugins.code import stamps
from attnbench.plugins.registry import Entry
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import VerifierFailed, VerifierLink, WorkerFailed, WorkerLink
from attnbench.types.backend import Backend
from attnbench.types.encoding import is_encoded

if TYPE_CHECKING:
    from attnbench.runner.input_pools import InputPools

_ONE_CALL = m.Compute()


@dataclass(frozen=True)
class ArrayBlock:
    """Arrays in shared memory: their layout and the descriptor, open as long as the case is."""

    arrays: tuple[m.ArraySpec, ...]
    fd: int


@dataclass(frozen=True)
class DrawnInputs:
    """Inputs by name: their draw, and the seed of the transform applied to it (0: none)."""

    draw: int
    change: int


@dataclass(frozen=True)
class CaseContext:
    """An open case as its workers need it.

    opening, opened: the request that opened it, and its answer. threads: of every library in its workers.
    draws: inputs, those of the check first, then those of timed calls. memory_limit_bytes: what a worker may
    allocate. verifier: the process that has the case open. pools: where its inputs rotate, and are timed.
    """

    opening: rm.OpenCase
    opened: rm.CaseOpened
    threads: int
    parameters: ArrayBlock
    draws: tuple[ArrayBlock, ...]
    memory_limit_bytes: int
    verifier: VerifierLink
    pools: InputPools | None = None

    @property
    def case(self) -> str:
        """The id of the case."""
        return self.opening.case

    @property
    def backward(self) -> bool:
        """Return whether workers compute gradients."""
        return parse_case(self.case).pass_ != "forward"

    @property
    def check_draws(self) -> int:
        """The number of draws of the check; those of timed calls follow."""
        return len(self.opened.stress_inputs)

    def stress(self, index: int) -> str:
        """Return the stress input of a draw, or ``normal``; draws of timed calls are ordinary."""
        return self.opened.stress_inputs[index] if index < self.check_draws else NORMAL

    @property
    def timed_draws(self) -> range:
        """The draws of timed calls."""
        return range(self.check_draws, len(self.draws))

    @property
    def pooled_draw(self) -> int:
        """The draw that the copies of a pool have: the first of those of timed calls."""
        return self.check_draws

    @contextmanager
    def for_plain(self, index: int) -> Iterator[ArrayBlock]:
        """Yield the inputs of a draw as the plain reference gets them: a batch apart, and none encoded."""
        case = parse_case(self.case)
        if not case.batch and not is_encoded(case):
            yield self.draws[index]
            return
        drawn, fd = self.verifier.ask(rm.GetDraw(index, apart=True), rm.Arrays)
        try:
            yield ArrayBlock(drawn.arrays, fd)
        finally:
            os.close(fd)

    @contextmanager
    def refreshed(self, places: Sequence[DrawnInputs]) -> Iterator[tuple[ArrayBlock, ...]]:
        """Yield the inputs of timed draws, each with its transform applied; close them at the end."""
        blocks: list[ArrayBlock] = []
        try:
            for place in places:
                drawn, fd = self.verifier.ask(rm.GetDraw(place.draw, place.change), rm.Arrays)
                blocks.append(ArrayBlock(drawn.arrays, fd))
            yield tuple(blocks)
        finally:
            for block in blocks:
                os.close(block.fd)


@contextmanager
def open_context(
    verifier: VerifierLink, opening: rm.OpenCase, threads: int, memory_limit_bytes: int
) -> Iterator[CaseContext]:
    """Have the verifier open a case and solve its draws; close the arrays at the end.

    Raises:
        VerifierFailed: it cannot.
    """
    opened, parameters_fd = verifier.ask(opening, rm.CaseOpened)
    blocks = [ArrayBlock(opened.parameters, parameters_fd)]
    try:
        for index in range(len(opened.stress_inputs) + opening.timed_draws):
            drawn, fd = verifier.ask(rm.GetDraw(index), rm.Arrays)
            blocks.append(ArrayBlock(drawn.arrays, fd))
        parameters, *draws = blocks
        yield CaseContext(opening, opened, threads, parameters, tuple(draws), memory_limit_bytes, verifier)
    finally:
        for block in blocks:
            os.close(block.fd)


def prepare_worker(
    pool: WorkerPool,
    context: CaseContext,
    entry: Entry[Backend] | None,
    *,
    worker: WorkerLink | None = None,
) -> tuple[WorkerLink, m.Prepared]:
    """Prepare a backend (None: the plain reference) in a worker; return it with its answer.

    worker: one that has imported the same backend before, whose last case it forgets; None for a new one.

    Raises:
        WorkerFailed: the backend could not be prepared; the worker is gone.
    """
    backend_source, side = (None, "") if entry is None else (entry.source, entry.side)
    if worker is None:
        worker = pool.new_worker(context.threads, pool.all_cpus, backward=context.backward, side=side)
    request = m.Prepare(
        case=context.case,
        backend=PLAIN if entry is None else entry.record.name,
        backend_source=backend_source,
        rule_source=context.opening.rule_source,
        parameters=context.parameters.arrays,
        operation_source=context.opening.operation_source,
        storage_source=context.opening.storage_source,
        encoding_source=context.opening.encoding_source,
        memory_limit_bytes=None if entry is None else context.memory_limit_bytes,
    )
    try:
        prepared, _ = worker.ask(request, m.Prepared, fds=(context.parameters.fd,))
        reported_code(pool, context, worker, entry)
        shared = None if context.pools is None or entry is None else context.pools.file(entry.record)
        if shared is not None:
            worker.ask(m.UsePool(), m.Done, fds=(shared,))
    except BaseException:
        worker.kill()
        raise
    return worker, prepared


def reported_code(
    pool: WorkerPool, context: CaseContext, worker: WorkerLink, entry: Entry[Backend] | None
) -> dict[str, str]:
    """Return the digests of the modules that a worker has by now of a backend's plugin, and of the case's.

    Raises:
        WorkerFailed: they are not those that other processes of the run had.
    """
    opening, side = context.opening, ""
    brought = (
        opening.operation_source, opening.storage_source, opening.encoding_source, opening.rule_source
    )  # fmt: skip
    sources = [source for source in brought if source is not None]
    if entry is not None:
        side = entry.side
        sources.append(entry.source)
    whose = f"{side} {sources[-1].module}"
    if not side and not pool.knows(whose):
        pool.same_code(whose, stamps(sources, beside=False))
    code, _ = worker.ask(m.ReportCode(tuple(sources)), m.Code)
    return pool.same_code(whose, code.modules)


def check_verifier(pool: WorkerPool, context: CaseContext) -> None:
    """Raise :class:`WorkerFailed` if the verifier has other code of the case's plugins than workers have.

    Raises:
        MeasuringFailed: it runs another attnbench than this process.
    """
    pool.same_attnbench(context.opened.attnbench)
    pool.same_code(f" {context.opening.rule_source.module}", context.opened.modules)


def give_draw(
    link: WorkerLink,
    draw: ArrayBlock,
    *,
    fresh: bool = False,
    junk_bytes: int = 0,
    guarded: bool = False,
    delivery: str = "",
) -> None:
    """Give a worker inputs, in the storage of the inputs before unless ``fresh``.

    guarded: between bands of NaN. delivery: how they arrive, see :mod:`attnbench.worker.prepared`.
    """
    request = m.Activations(draw.arrays, fresh, junk_bytes, guarded, delivery)
    link.ask(request, m.Done, fds=(draw.fd,))


def score(
    link: WorkerLink,
    verifier: VerifierLink,
    who: str,
    index: int,
    compute: m.Compute = _ONE_CALL,
    what: rm.What = "output",
) -> tuple[rm.Scored, int]:
    """Have a worker compute, and the verifier compare; return what is wrong, and the ns of the last call.

    who: the backend, "" for the plain reference. index: of the draw that the worker holds.
    """
    answer, fd = link.ask(compute, m.Outputs)
    if fd < 0 or len(answer.outputs) != compute.count:
        raise WorkerFailed("crashed", "the worker answered without its outputs")
    try:
        scored, _ = verifier.ask(rm.Score(who, index, answer.outputs, what), rm.Scored, fd)
    finally:
        os.close(fd)
    return scored, answer.ns


@contextmanager
def judging(verifier: VerifierLink) -> Iterator[None]:
    """Let a failed judgement of one backend's outputs be that backend's, and harm no other.

    The worker has checked the form of outputs. So if they can't be judged, the judge has failed, and nothing
    is known of the backend.

    Raises:
        WorkerFailed: ``unjudged``, where the verifier goes on.
    """
    try:
        yield
    except VerifierFailed as failure:
        if not verifier.alive:
            raise
        raise WorkerFailed("unjudged", str(failure), failure.check) from failure
