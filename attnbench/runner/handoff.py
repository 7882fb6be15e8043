"""One segment: workers take slots on one core in a fixed order, and each hands the core to the next."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise

from attnbench.ipc import messages as m
from attnbench.ipc.names import CALLED_OFF
from attnbench.ipc.process import is_stopped
from attnbench.runner.context import ArrayBlock
from attnbench.runner.processes import LOOK_S, ServerLost, WorkerFailed, WorkerLink
from attnbench.types.record import CandidatePlan, SegmentSamples

_CALLED_OFF_S = 10.0
"""The least time that a worker has to finish its slot after the segment is called off."""


@dataclass(frozen=True)
class Segment:
    """The results of one segment: the samples of each worker, or the failures.

    Where a worker failed, no other has complete samples: there are none, and the others may try again.
    """

    samples: Mapping[str, SegmentSamples]
    failed: Mapping[str, WorkerFailed]


def take_segment(
    number: int,
    order: Sequence[str],
    links: Mapping[str, WorkerLink],
    plans: Mapping[str, CandidatePlan],
    patience_s: float,
    refreshed: ArrayBlock | None = None,
    starts: Mapping[str, Sequence[int]] | None = None,
) -> Segment:
    """Have the workers take their slots in ``order``; sleep until all have answered.

    refreshed: the inputs that each worker continues with from some call on. starts: of workers that share a
    pool, the place in its order where each slot begins. If a worker fails, or does not finish within
    ``patience_s``, the segment is called off for all.
    """
    asked: list[str] = []
    failed: dict[str, WorkerFailed] = {}
    with ExitStack() as stack:
        handoffs = {name: os.eventfd(0, os.EFD_CLOEXEC) for name in links}
        for fd in handoffs.values():
            stack.callback(os.close, fd)
        arrays, memory = ((), ()) if refreshed is None else (refreshed.arrays, (refreshed.fd,))
        for name, link in links.items():
            # Its own descriptor comes first.
            known = [name, *(other for other in links if other != name)]
            slots = [place for place, owner in enumerate(order) if owner == name]
            successors = [known.index(order[at + 1]) if at + 1 < len(order) else -1 for at in slots]
            plan = plans[name]
            request = m.TakeSlots(
                number,
                tuple(slots),
                tuple(successors),
                plan.calls,
                plan.warm_calls,
                arrays,
                tuple((starts or {}).get(name, ())),
            )
            try:
                link.tell(request, (*(handoffs[other] for other in known), *memory))
                asked.append(name)
            except WorkerFailed as failure:
                failed[name] = failure
        begun_ns = time.perf_counter_ns()
        if failed:
            _call_off(handoffs)
        else:
            os.eventfd_write(handoffs[order[0]], 1)
        taken, in_time = _hear_all({name: links[name] for name in asked}, patience_s, handoffs, failed)
        ended_ns = time.perf_counter_ns()
    done = sum(len(slots.samples.slots) for slots in taken.values())
    if not failed and not in_time and done < len(order):
        # All answered, so the backend that was in its slot when the time was over took too long.
        slow = f"the segment took longer than {patience_s:g} s, and was then in a slot of this backend"
        failed[order[max(0, done - 1)]] = WorkerFailed("timeout", slow)
    if not failed:
        problems = {name: clock_problem(slots, begun_ns, ended_ns) for name, slots in taken.items()}
        failed |= {name: WorkerFailed("error", text, "clock") for name, text in problems.items() if text}
    if failed:
        return Segment({}, failed)
    return Segment({name: slots.samples for name, slots in taken.items()}, {})


def _call_off(handoffs: Mapping[str, int]) -> None:
    for fd in handoffs.values():
        os.eventfd_write(fd, CALLED_OFF)


def _hear_all(
    links: Mapping[str, WorkerLink],
    patience_s: float,
    handoffs: Mapping[str, int],
    failed: dict[str, WorkerFailed],
) -> tuple[dict[str, m.SlotsTaken], bool]:
    """Wait for every answer; return them, and whether all came in time.

    Adds to ``failed``; its first entry makes the others stop.
    """
    taken: dict[str, m.SlotsTaken] = {}
    waiting = {link.fileno(): name for name, link in links.items()}
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    called_off, in_time = bool(failed), True
    end = time.monotonic() + patience_s
    while waiting:
        left_s = end - time.monotonic()
        ready = poll.poll(max(0.0, min(LOOK_S, left_s)) * 1000)
        stopped = any(is_stopped(links[name].pid) for name in waiting.values())
        if not ready and left_s > LOOK_S and not stopped:
            continue
        if not ready and called_off:
            for name in waiting.values():
                late = links[name].too_late(m.TakeSlots, patience_s)
                if isinstance(late, ServerLost):
                    raise late
                failed[name] = late
            break
        for fd, _ in ready:
            name = waiting.pop(fd)
            poll.unregister(fd)
            try:
                taken[name], _ = links[name].hear(m.TakeSlots, m.SlotsTaken, patience_s)
            except WorkerFailed as failure:
                failed[name] = failure
        if not called_off and (failed or not ready):
            _call_off(handoffs)
            called_off, in_time = True, bool(ready)
            # A worker may have failed after its handoff, so the worker in its slot keeps its time.
            end = max(end, time.monotonic() + _CALLED_OFF_S)
    return taken, in_time


def clock_problem(taken: m.SlotsTaken, begun_ns: int, ended_ns: int) -> str:
    """Describe how a worker's clock disagrees with the parent's; "" if it does not.

    begun_ns, ended_ns: of the segment, by the parent's clock. Times outside of it would also lengthen or
    shorten the slots of other workers.
    """
    shortest_ns = min(taken.samples.wall_ns, default=1)
    if shortest_ns <= 0:
        return f"a sample took {shortest_ns} ns: the worker's clock does not go forward"
    times = [begun_ns, *chain.from_iterable(zip(taken.received_ns, taken.passed_ns, strict=True)), ended_ns]
    if any(later < earlier for earlier, later in pairwise(times)):
        return "by the worker's clock, its slots overlap or lie outside of the segment"
    return ""
