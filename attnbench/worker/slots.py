"""Timed slots: take slots with other workers on one core, with inputs refreshed in between."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from attnbench.ipc.messages import SlotsTaken, TakeSlots
from attnbench.ipc.names import CALLED_OFF
from attnbench.ipc.shared_memory import Stored, mapped
from attnbench.timing.sample import Sample, Timer, device_fields, joined, take_sample
from attnbench.types.record import SegmentSamples
from attnbench.worker.answers import TimedCall
from attnbench.worker.prepared import PreparedBackend

SETTLED_NS, UNSETTLED_AT_MOST_NS = 300_000, 20_000_000
"""Calls of several threads are settled once the calling thread has kept its core for so long, and are made at
most for so long."""
KEEPS_CORE, LONG_NS = 0.9, 5_000_000
"""A thread that has its core for a larger share of the time keeps it. Longer calls need no settling."""
REPEATS, MOST_UNLIKE = 4, 4
"""About so many samples of a segment have their last output compared with an earlier one. Of a kernel whose
outputs differ in bits no more than so many are kept in a repetition."""


def _refreshed_sample(
    request: TakeSlots, stored: Mapping[str, Stored], prepared: PreparedBackend, timer: Timer, slot: int
) -> tuple[Sample, Any]:
    """Take a sample and refresh the inputs between two of its calls; return it and the last output.

    The outputs of the call before, if there is one, and of the call after are logged. On a device the
    calls of a sample are one launch, so inputs are refreshed before the first. Of a pool only the copy of the
    call before is refreshed, for one call: writing all copies would not fit into a slot, and an answer that
    was remembered for this memory is wrong now.
    """
    calls, on_cpu = request.calls, prepared.case.on_host
    at, first = (secrets.randbelow(calls), 1) if on_cpu else (0, calls)
    inputs, see = prepared.inputs or (), prepared.output_log.see
    samples: list[Sample] = []
    if at:
        sample, output = timer(prepared.call, *inputs, at)
        samples.append(sample)
        see(prepared, TimedCall(output, request.segment, slot, at - 1, refreshed=False))
    pool = prepared.pool
    refreshed = inputs if pool is None else pool.last
    prepared.write(stored, refreshed)
    if pool is None:
        sample, output = timer(prepared.call, *inputs, first)
    else:
        sample, output = take_sample(prepared.call, *refreshed, first)
    see(prepared, TimedCall(output, request.segment, slot, at + first - 1, refreshed=True))
    if pool is not None:
        for old, now in zip(refreshed, inputs, strict=True):
            old.copy_(now)
        prepared.tell_ahead(inputs)
    samples.append(replace(sample, refreshed_ns=sample.wall_ns if on_cpu else 0))
    if at + first < calls:
        sample, output = timer(prepared.call, *inputs, calls - at - first)
        samples.append(sample)
    return joined(samples), output


def take_slots(
    request: TakeSlots, fds: Sequence[int], prepared: PreparedBackend, timer: Timer
) -> tuple[SlotsTaken, TimedCall | None]:
    """Take the slots; return what was measured and the last call.

    Between slots the process sleeps in a system call. It passes the handoff on before it writes anything
    down, to delay the next slot as little as possible.
    """
    assert prepared.inputs is not None
    inputs = prepared.inputs
    call, calls, warm_calls, own = prepared.call, request.calls, request.warm_calls, fds[0]
    samples: list[Sample] = []
    received_ns: list[int] = []
    passed_ns: list[int] = []
    output: Any = None
    stored = mapped(fds[-1], request.refreshed)
    awaited, refreshed = bool(stored), False
    # Outputs of a device would have to be copied; those of dropout differ.
    repeats = REPEATS if prepared.case.on_host and not prepared.case.dropout else 0
    settles = prepared.case.on_host and prepared.case.threads > 1
    others_ns = _others_cpu_ns()
    for number, successor in enumerate(request.successors):
        if _wait(own) >= CALLED_OFF:
            break
        received_ns.append(perf_counter_ns())
        output = None
        # Every slot that is left is equally likely, so no backend can predict it.
        refreshes = awaited and secrets.randbelow(len(request.slots) - number) == 0
        if settles:
            settles = settle(call, inputs)
        if prepared.pool is not None:
            if request.starts:
                prepared.pool.go_to(request.starts[number])
            prepared.pool.make(warm_calls + calls)
        if warm_calls:
            timer.warm(call, *inputs, warm_calls)
        if refreshes:
            sample, output = _refreshed_sample(request, stored, prepared, timer, request.slots[number])
            # The copy of a pool has its old values again.
            awaited, refreshed = False, prepared.pool is None
        else:
            sample, output = timer(call, *inputs, calls)
            # As unpredictable as the refresh, and before the handoff, because the core is this process's. The
            # last output is kept anyway.
            looks = secrets.randbelow(len(request.slots)) < repeats and number < len(request.slots) - 1
            if looks and prepared.output_log.unlike < MOST_UNLIKE:
                log, place = prepared.output_log, request.slots[number]
                log.see(prepared, TimedCall(output, request.segment, place, calls - 1, refreshed))
        # Long calls outlast the kernel's first choice of cores.
        settles = settles and sample.wall_ns < LONG_NS * calls
        passed_ns.append(perf_counter_ns())
        if successor >= 0:
            os.eventfd_write(fds[successor], 1)
        samples.append(sample)
    others_cpu_ns = _others_cpu_ns() - others_ns
    taken = SlotsTaken(
        _segment_samples(request, samples, timer, max(0, others_cpu_ns)), received_ns, passed_ns
    )
    if not samples:
        return taken, None
    return taken, TimedCall(output, request.segment, request.slots[len(samples) - 1], calls - 1, refreshed)


def settle(call: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Make calls until the threads of a call have a core each, as they soon have in a program.

    A thread of a pool that is woken while the process before still goes to sleep finds all cores busy, and
    may be put on the core of the thread that called it. The kernel parts them milliseconds later, which is
    longer than many slots. Return whether they were parted: a call whose own thread sleeps while others work
    never looks so.
    """
    kept_ns, spent_ns = 0, 0
    while kept_ns < SETTLED_NS:
        if spent_ns > UNSETTLED_AT_MOST_NS:
            return False
        sample, _ = take_sample(call, *inputs, 1)
        kept_ns = kept_ns + sample.wall_ns if sample.cpu_ns >= KEEPS_CORE * sample.wall_ns else 0
        spent_ns += sample.wall_ns
    return True


def _wait(handoff: int) -> int:
    """Sleep until the handoff comes, also through signals that a library handles."""
    while True:
        try:
            return os.eventfd_read(handoff)
        except InterruptedError:
            continue


def _others_cpu_ns() -> int:
    """Return the CPU time that the other threads of this process have had."""
    return process_time_ns() - thread_time_ns()


def _segment_samples(
    request: TakeSlots, samples: Sequence[Sample], timer: Timer, others_cpu_ns: int
) -> SegmentSamples:
    return SegmentSamples(
        segment=request.segment,
        slots=list(request.slots[: len(samples)]),
        calls=request.calls,
        wall_ns=[s.wall_ns for s in samples],
        cpu_ns=[s.cpu_ns for s in samples],
        switches=[s.switches for s in samples],
        faults=[s.faults for s in samples],
        others_cpu_ns=others_cpu_ns,
        refreshed_ns=sum(s.refreshed_ns for s in samples),
        **device_fields(timer, samples),
    )
