"""Taking turns with other processes on the same core: a sample when the baton comes, then on to the next."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from attnbench.timing.sample import Sample
from attnbench.timing.timer import Timer, device_fields
from attnbench.types.record import Block
from attnbench.worker.evidence import Evidence
from attnbench.worker.held import Held, LastCall
from attnbench.worker.messages import TakeTurns, TurnsTaken
from attnbench.worker.renewal import Renewal
from attnbench.worker.shared import mapped

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
    a, b, c = held.inputs
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
            timer.warm(call, a, b, c, warm_calls)
        if awaited is not None and renews:
            sample, output = awaited.sample(held, timer, calls, request.turns[number])
            awaited = None
        else:
            sample, output = timer(call, a, b, c, calls)
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
