"""One timed sample: back-to-back calls in an inline loop, with the process's vitals around it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns, thread_time_ns
from typing import Any

Call = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Sample:
    """``calls`` calls took ``wall_ns``. cpu_ns: of this thread. switches, faults: involuntary, minor.

    On a device, wall_ns is its own time; host_ns is what this thread took to launch, and cpu_ns what of that
    it had a core; clock_mhz is the device's, 0 where it doesn't tell. renewed_ns: of the one call in it that
    was the first on inputs written anew, 0 where none was, or where it was not timed alone.
    """

    calls: int
    wall_ns: int
    cpu_ns: int
    switches: int
    faults: int
    host_ns: int = 0
    clock_mhz: int = 0
    renewed_ns: int = 0


def take_sample(call: Call, a: Any, b: Any, c: Any, calls: int) -> tuple[Sample, Any]:
    """Make ``calls`` calls back to back; gives the sample and the last output.

    The vitals are read outside the timed window. An output is dropped as soon as the next call has
    returned: keeping all of them costs 4 to 5 %.
    """
    before = read_vitals()
    output = None
    times = repeat(None, calls)
    start = perf_counter_ns()
    for _ in times:
        output = call(a, b, c)
    stop = perf_counter_ns()
    return Sample(calls, stop - start, *spent_since(before)), output


def joined(samples: Sequence[Sample]) -> Sample:
    """Samples taken one after the other as one: what was between them is in none."""
    return Sample(
        calls=sum(s.calls for s in samples),
        wall_ns=sum(s.wall_ns for s in samples),
        cpu_ns=sum(s.cpu_ns for s in samples),
        switches=sum(s.switches for s in samples),
        faults=sum(s.faults for s in samples),
        host_ns=sum(s.host_ns for s in samples),
        clock_mhz=samples[-1].clock_mhz,
        renewed_ns=sum(s.renewed_ns for s in samples),
    )


def read_vitals() -> tuple[int, int, int]:
    """CPU time of this thread, ns; involuntary switches and minor faults of this process, so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return thread_time_ns(), usage.ru_nivcsw, usage.ru_minflt


def spent_since(before: tuple[int, int, int]) -> tuple[int, int, int]:
    """CPU time, switches and faults since then; the time first, so that reading adds least to it."""
    cpu_ns = thread_time_ns() - before[0]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return cpu_ns, usage.ru_nivcsw - before[1], usage.ru_minflt - before[2]
