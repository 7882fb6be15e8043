"""Timed slots: take turns with other workers on one core, with inputs refreshed in between."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from attnbench.ipc.messages import TakeTurns, TurnsTaken
from attnbench.ipc.shared_memory import Stored, mapped
from attnbench.timing.sample import Sample, Timer, device_fields, joined, take_sample
from attnbench.types.record import Block
from attnbench.worker.answers import Evidence
from attnbench.worker.prepared import Held, LastCall


@dataclass(frozen=True)
class Renewal:
    """Inputs to come, and where the outputs around their coming are kept."""

    stored: Mapping[str, Stored]
    evidence: Evidence
    stretch: int

    def sample(self, held: Held, timer: Timer, calls: int, turn: int) -> tuple[Sample, Any]:
        """A sample of ``calls`` calls, between two of which the inputs are renewed; and the last output.

        The output before is kept where there is one, that of the first call after in any case. On a device,
        where calls of a sample are one launch, inputs are renewed before all of them.

        A pool of copies, of which each call takes the next, has just the next one written anew, and back: all
        of it would not fit into a turn.
        """
        at = secrets.randbelow(calls) if held.case.device == "cpu" else 0
        inputs = held.inputs or ()
        samples: list[Sample] = []
        if at:
            sample, output = timer(held.call, *inputs, at)
            samples.append(sample)
            self._keep(held, output, turn, at - 1, renewed=False)
        if held.pool is None:
            start = perf_counter_ns()
            held.write(self.stored)
            self.evidence.spent(perf_counter_ns() - start)
            first = calls if held.case.device != "cpu" else 1
            sample, output = timer(held.call, *inputs, first)
            self._keep(held, output, turn, at + first - 1, renewed=True)
        else:
            sample, output = self._in_pool(held, turn, at)
            first = 1
        alone_ns = sample.wall_ns if held.case.device == "cpu" else 0
        samples.append(replace(sample, renewed_ns=alone_ns))
        if at + first < calls:
            sample, output = timer(held.call, *inputs, calls - at - first)
            samples.append(sample)
        return joined(samples), output

    def _in_pool(self, held: Held, turn: int, at: int) -> tuple[Sample, Any]:
        assert held.pool is not None
        start = perf_counter_ns()
        triple = next(held.pool.upcoming)
        held.write(self.stored, triple)
        self.evidence.spent(perf_counter_ns() - start)
        sample, output = take_sample(held.call, *triple, 1)
        self._keep(held, output, turn, at, renewed=True)
        start = perf_counter_ns()
        assert held.inputs is not None
        for old, now in zip(triple, held.inputs, strict=True):
            old.copy_(now)
        self.evidence.spent(perf_counter_ns() - start)
        return sample, output

    def _keep(self, held: Held, output: Any, turn: int, call: int, *, renewed: bool) -> None:
        self.evidence.keep(held, output, self.stretch, turn, call, renewed=renewed)


CALLED_OFF = 1 << 32
"""Added to an eventfd by the parent: no more turns."""


def take_turns(
    request: TakeTurns, fds: Sequence[int], held: Held, timer: Timer, evidence: Evidence
) -> tuple[TurnsTaken, LastCall | None]:
    """Take the turns; gives what was measured and the last call.

    Between turns the process sleeps in a system call. The baton is passed before anything is written
    down, so what follows a sample is not in the next one's way for longer than it must.
    """
    assert held.inputs is not None
    inputs = held.inputs
    call, calls, warm_calls, own = held.call, request.calls, request.warm_calls, fds[0]
    samples: list[Sample] = []
    received_ns: list[int] = []
    passed_ns: list[int] = []
    output: Any = None
    renewal: Renewal | None = None
    if request.renewed:
        renewal = Renewal(mapped(fds[-1], request.renewed), evidence, request.stretch)
    awaited = renewal
    process_ns, thread_ns = process_time_ns(), thread_time_ns()
    for number, successor in enumerate(request.successors):
        if _wait(own) >= CALLED_OFF:
            break
        received_ns.append(perf_counter_ns())
        output = None
        # Every turn left is equally likely, so no backend can know which one it is.
        renews = awaited is not None and secrets.randbelow(len(request.turns) - number) == 0
        if warm_calls:
            timer.warm(call, *inputs, warm_calls)
        if awaited is not None and renews:
            sample, output = awaited.sample(held, timer, calls, request.turns[number])
            awaited = None
        else:
            sample, output = timer(call, *inputs, calls)
        passed_ns.append(perf_counter_ns())
        if successor >= 0:
            os.eventfd_write(fds[successor], 1)
        samples.append(sample)
    process_ns, thread_ns = process_time_ns() - process_ns, thread_time_ns() - thread_ns
    taken = TurnsTaken(_block(request, samples, timer), received_ns, passed_ns, process_ns, thread_ns)
    if not samples:
        return taken, None
    # A pool has its inputs back already.
    renewed = renewal is not None and awaited is None and held.pool is None
    return taken, LastCall(output, request.stretch, request.turns[len(samples) - 1], calls - 1, renewed)


def _wait(baton: int) -> int:
    """Sleep until the baton comes; a signal that a library has a handler for wakes nobody up."""
    while True:
        try:
            return os.eventfd_read(baton)
        except InterruptedError:
            continue


def _block(request: TakeTurns, samples: Sequence[Sample], timer: Timer) -> Block:
    return Block(
        stretch=request.stretch,
        turns=list(request.turns[: len(samples)]),
        calls=request.calls,
        wall_ns=[s.wall_ns for s in samples],
        cpu_ns=[s.cpu_ns for s in samples],
        switches=[s.switches for s in samples],
        faults=[s.faults for s in samples],
        asked_ns=[],
        renewed_ns=sum(s.renewed_ns for s in samples),
        **device_fields(timer, samples),
    )
