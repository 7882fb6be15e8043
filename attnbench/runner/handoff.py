"""Letting processes take turns: who is next is settled before the start, and they tell each other."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import msgspec

from attnbench.ipc import messages as m
from attnbench.ipc.names import CALLED_OFF
from attnbench.runner.context import ArrayBlock
from attnbench.runner.link import WorkerFailed, WorkerLink, waited_ns
from attnbench.types.record import Block, CandidatePlan

_CALLED_OFF_S = 10.0
"""How long a process may at least take over the turn it is in once the stretch is called off."""


@dataclass(frozen=True)
class Segment:
    """What came of one stretch: blocks of those that took all their turns, and how the others failed.

    Where any failed, nobody's turns are complete: there are no blocks, and the rest may try again.
    """

    blocks: Mapping[str, Block]
    failed: Mapping[str, WorkerFailed]


def take_segment(
    number: int,
    order: Sequence[str],
    links: Mapping[str, WorkerLink],
    plans: Mapping[str, CandidatePlan],
    patience_s: float,
    refreshed: ArrayBlock | None = None,
) -> Segment:
    """Have the contenders take their turns in ``order``; waits for all of them, asleep.

    renewed: the inputs that each goes on with from some call on. A contender that fails or does not finish
    within ``patience_s`` has the stretch called off for all.
    """
    handoffs = {name: os.eventfd(0, os.EFD_CLOEXEC) for name in links}
    try:
        return _take(number, order, links, plans, patience_s, handoffs, refreshed)
    finally:
        for fd in handoffs.values():
            os.close(fd)


def _take(
    number: int,
    order: Sequence[str],
    links: Mapping[str, WorkerLink],
    plans: Mapping[str, CandidatePlan],
    patience_s: float,
    handoffs: Mapping[str, int],
    refreshed: ArrayBlock | None,
) -> Segment:
    asked: dict[str, m.TakeSlots] = {}
    failed: dict[str, WorkerFailed] = {}
    for name, link in links.items():
        others = [other for other in links if other != name]
        asked[name] = _request(number, name, order, [name, *others], plans[name], refreshed)
        memory = () if refreshed is None else (refreshed.fd,)
        try:
            link.tell(asked[name], (handoffs[name], *(handoffs[other] for other in others), *memory))
        except WorkerFailed as failure:
            failed[name] = failure
            del asked[name]
    waited = {name: waited_ns(links[name].pid) for name in asked}
    overslept_ns = -waited_ns(os.getpid())
    begun_ns = time.perf_counter_ns()
    if failed:
        _call_off(handoffs)
    elif order:
        os.eventfd_write(handoffs[order[0]], 1)
    taken, in_time = _hear_all({name: links[name] for name in asked}, patience_s, handoffs, failed)
    ended_ns = time.perf_counter_ns()
    overslept_ns += waited_ns(os.getpid())
    waited = {name: waited_ns(links[name].pid) - before for name, before in waited.items()}
    done = sum(len(slots.block.turns) for slots in taken.values())
    if not failed and not in_time and done < len(order):
        # All are well: whoever was in its turn when time was over took longer than all should.
        slow = f"the turns of all were not over after {patience_s:g} s, and it was in one then"
        failed[order[max(0, done - 1)]] = WorkerFailed("timeout", slow)
    if not failed:
        problems = {name: slots_problem(taken[name], asked[name], begun_ns, ended_ns) for name in taken}
        failed |= {
            name: WorkerFailed("error", problem, "clock") for name, problem in problems.items() if problem
        }
    if failed:
        return Segment({}, failed)
    return Segment(_with_asked(order, taken, begun_ns, ended_ns, overslept_ns, waited), {})


def _request(
    number: int,
    name: str,
    order: Sequence[str],
    descriptors: Sequence[str],
    plan: CandidatePlan,
    refreshed: ArrayBlock | None,
) -> m.TakeSlots:
    slots = [place for place, who in enumerate(order) if who == name]
    successors = [descriptors.index(order[t + 1]) if t + 1 < len(order) else -1 for t in slots]
    arrays = () if refreshed is None else refreshed.arrays
    return m.TakeSlots(number, tuple(slots), tuple(successors), plan.calls, plan.warm_calls, arrays)


def _call_off(handoffs: Mapping[str, int]) -> None:
    for fd in handoffs.values():
        os.eventfd_write(fd, CALLED_OFF)


def _hear_all(
    links: Mapping[str, WorkerLink],
    patience_s: float,
    handoffs: Mapping[str, int],
    failed: dict[str, WorkerFailed],
) -> tuple[dict[str, m.SlotsTaken], bool]:
    """Wait for every answer; gives them, and whether time was enough for all.

    Adds to ``failed``, whose first entry makes the others stop.
    """
    taken: dict[str, m.SlotsTaken] = {}
    waiting = {link.fileno(): name for name, link in links.items()}
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    called_off, in_time = bool(failed), True
    end = time.monotonic() + patience_s
    while waiting:
        ready = poll.poll(max(0.0, end - time.monotonic()) * 1000)
        if not ready and called_off:
            for name in waiting.values():
                links[name].kill()
                reason = f"no answer to TakeSlots within {patience_s:g} s; killed"
                failed[name] = WorkerFailed("timeout", reason)
            break
        for fd, _ in ready:
            name = waiting.pop(fd)
            poll.unregister(fd)
            try:
                taken[name], _ = links[name].hear("TakeSlots", m.SlotsTaken, patience_s)
            except WorkerFailed as failure:
                failed[name] = failure
        if not called_off and (failed or not ready):
            _call_off(handoffs)
            called_off, in_time = True, bool(ready)
            # One that had passed the handoff on may have failed: whoever has it now keeps its time.
            end = max(end, time.monotonic() + _CALLED_OFF_S)
    return taken, in_time


def slots_problem(taken: m.SlotsTaken, asked: m.TakeSlots, begun_ns: int, ended_ns: int) -> str:
    """What makes turns none that were asked for, or impossible; "" where nothing does.

    begun_ns, ended_ns: of the stretch, by the parent's clock. Times outside of it would also make the turns
    of others look longer or shorter than they were.
    """
    block, count = taken.block, len(asked.slots)
    columns = (
        block.wall_ns, block.cpu_ns, block.switches, block.faults, taken.received_ns, taken.passed_ns,
        *(of_device for of_device in (block.host_ns, block.clock_mhz) if of_device),
    )  # fmt: skip
    if (block.stretch, tuple(block.turns), block.calls) != (asked.segment, asked.slots, asked.calls):
        return "the worker took other turns than it was asked for"
    if any(len(column) != count for column in columns):
        return f"the worker took {len(block.wall_ns)} samples where {count} were asked for"
    if count and min(block.wall_ns) <= 0:
        return f"a sample of {min(block.wall_ns)} ns: the worker's clock does not go forward"
    times = [begun_ns, *chain.from_iterable(zip(taken.received_ns, taken.passed_ns, strict=True)), ended_ns]
    if any(later < earlier for earlier, later in pairwise(times)):
        return "turns before it was asked, after it answered, or one before the other, by the worker's clock"
    return ""


def _with_asked(
    order: Sequence[str],
    taken: Mapping[str, m.SlotsTaken],
    begun_ns: int,
    ended_ns: int,
    overslept_ns: int,
    waited: Mapping[str, int],
) -> dict[str, Block]:
    """Blocks with how long each turn took by the clocks of those before and after it.

    Of several turns in a row, whose bounds nobody else saw, each gets the same share. So that one wait for
    the core doesn't lengthen all of them, what the process waited (ns, by the system) is taken off first.
    Where the parent saw a bound, so is what it waited itself (``overslept_ns``): it may have woken up late.
    """
    received = {name: iter(slots.received_ns) for name, slots in taken.items()}
    passed = {name: iter(slots.passed_ns) for name, slots in taken.items()}
    bounds = [(name, next(received[name]), next(passed[name])) for name in order]
    asked: dict[str, list[int]] = {name: [] for name in taken}
    first = 0
    for place, (name, _, _) in enumerate(bounds):
        if place + 1 < len(bounds) and bounds[place + 1][0] == name:
            continue
        before = bounds[first - 1][2] if first else begun_ns
        after = bounds[place + 1][1] if place + 1 < len(bounds) else ended_ns
        count = place + 1 - first
        took_ns = after - before
        if first == 0 or place + 1 == len(bounds):
            took_ns -= overslept_ns
        if count > 1 or count == len(order):
            took_ns -= waited[name] * count // len(taken[name].received_ns)
        asked[name] += [max(0, round(took_ns / count))] * count
        first = place + 1
    return {
        name: msgspec.structs.replace(
            slots.block,
            asked_ns=asked[name],
            others_cpu_ns=max(0, slots.process_cpu_ns - slots.thread_cpu_ns),
        )
        for name, slots in taken.items()
    }
