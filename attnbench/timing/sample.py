"""One timed sample on a device: back-to-back calls in an inline loop, with vitals around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from attnbench.types.case import CacheMode
from attnbench.types.device import DEVICES
from attnbench.types.record import DeviceMode

if TYPE_CHECKING:
    from attnbench.timing.cuda import CudaTimer

Call = Callable[..., Any]


@dataclass(frozen=True)
class Sample:
    """``calls`` calls took ``wall_ns``. cpu_ns: of this thread. switches, faults: involuntary, minor.

    On a device, wall_ns is the device's time, host_ns the time of this thread to launch the calls, and cpu_ns
    its CPU time in it. clock_mhz: of the device, 0 where unknown. refreshed_ns: the time of the first call on
    new inputs, 0 where there was none or it was not timed alone.
    """

    calls: int
    wall_ns: int
    cpu_ns: int
    switches: int
    faults: int
    host_ns: int = 0
    clock_mhz: int = 0
    refreshed_ns: int = 0


def take_sample(call: Call, *inputs_and_calls: Any) -> tuple[Sample, Any]:
    """Make calls back to back; return the sample and the last output.

    inputs_and_calls: the inputs of every call, then how many calls.
    """
    *inputs, calls = inputs_and_calls
    return sample_of(call, repeat(tuple(inputs), calls), calls)


def sample_of(call: Call, inputs_of_each: Iterator[tuple[Any, ...]], calls: int) -> tuple[Sample, Any]:
    """Make a call on each of ``calls`` inputs; return the sample and the last output.

    The vitals are read outside the timed window. An output is dropped as soon as the next call has
    returned, since keeping all of them costs 4 to 5 %. The loop makes no new tuples.
    """
    before = read_vitals()
    output = None
    start = perf_counter_ns()
    for inputs in inputs_of_each:
        output = call(*inputs)
    stop = perf_counter_ns()
    return Sample(calls, stop - start, *spent_since(before)), output


def joined(samples: Sequence[Sample]) -> Sample:
    """Join consecutive samples to one; the time between them does not count."""
    return Sample(
        calls=sum(s.calls for s in samples),
        wall_ns=sum(s.wall_ns for s in samples),
        cpu_ns=sum(s.cpu_ns for s in samples),
        switches=sum(s.switches for s in samples),
        faults=sum(s.faults for s in samples),
        host_ns=sum(s.host_ns for s in samples),
        clock_mhz=samples[-1].clock_mhz,
        refreshed_ns=sum(s.refreshed_ns for s in samples),
    )


def read_vitals() -> tuple[int, int, int]:
    """Return the CPU time of this thread, ns, and involuntary switches and minor faults of this process."""
    import resource  # not on Windows, where other parts of this module are read

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return thread_time_ns(), usage.ru_nivcsw, usage.ru_minflt


def spent_since(before: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return CPU time, switches and faults since then; the time is read first, so reading adds little."""
    cpu_ns = thread_time_ns() - before[0]
    _, switches, faults = read_vitals()
    return cpu_ns, switches - before[1], faults - before[2]


class CpuTimer:
    """The timer of the CPU; calling it is :func:`take_sample`.

    mode: the kind of its samples. default_clock_mhz: of a device that is not slowed down; 0 where there is
    none.
    """

    mode: DeviceMode = ""
    default_clock_mhz = 0
    __call__ = staticmethod(take_sample)

    def warm(self, call: Call, *inputs_and_calls: Any) -> None:
        """Make calls that are not timed: a sample that nobody reads."""
        self(call, *inputs_and_calls)


Timer: TypeAlias = "CpuTimer | CudaTimer"
"""A timer leaves its device idle before and after a sample."""


@lru_cache
def timer_for(device: str, cache: CacheMode = "hot", captures: bool = True) -> Timer:
    """Return the timer of a kind of device, one for each process, since a CUDA timer keeps its graphs.

    On CUDA the cache mode ``hot`` is timed in batches, ``rotating`` in cold single launches. captures: see
    :class:`~attnbench.timing.cuda.CudaTimer`.
    """
    if DEVICES[device].on_host:
        return CpuTimer()
    from attnbench.timing.cuda import cuda_timer

    return cuda_timer(cold=cache == "rotating", captures=captures)


def device_fields(timer: Timer, samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the device's fields of a :class:`~attnbench.types.record.Block`; nothing on the CPU."""
    if not timer.mode:
        return {}
    return {
        "mode": timer.mode,
        "host_ns": [sample.host_ns for sample in samples],
        "clock_mhz": [sample.clock_mhz for sample in samples],
        "default_clock_mhz": timer.default_clock_mhz,
    }
