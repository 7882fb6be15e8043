"""The timer of a device: how one sample is taken there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from attnbench.timing.cpu import CpuTimer
from attnbench.timing.sample import Call, Sample
from attnbench.types.case import CacheMode
from attnbench.types.record import DeviceMode


class Timer(Protocol):
    """Takes samples; the same for every device.

    mode: what its samples are, a :data:`~attnbench.types.record.DeviceMode`.
    default_clock_mhz: of the device's cores where it has such a thing, else 0.
    """

    @property
    def mode(self) -> DeviceMode:
        """What the samples so far are."""

    @property
    def default_clock_mhz(self) -> int:
        """The clock that a device not slowed down runs at."""

    def __call__(self, call: Call, a: Any, b: Any, c: Any, calls: int, /) -> tuple[Sample, Any]:
        """Make ``calls`` timed calls; gives the sample and the last output. Begins and ends at rest."""

    def warm(self, call: Call, a: Any, b: Any, c: Any, calls: int, /) -> None:
        """Make calls that are not timed."""

    def settle(self) -> None:
        """Wait until the device is at rest, so that another process can be timed."""


@lru_cache
def timer_for(device: str, cache: CacheMode = "hot") -> Timer:
    """The timer for "cpu" or "cuda", one for each process: a CUDA timer keeps what it has captured.

    On CUDA the cache mode ``hot`` is timed in batches, ``rotating`` by cold single launches.
    """
    if device == "cpu":
        return CpuTimer()
    from attnbench.timing.cuda import cuda_timer

    return cuda_timer(cold=cache == "rotating")


def device_fields(timer: Timer, samples: Sequence[Sample]) -> dict[str, Any]:
    """What a :class:`~attnbench.types.record.Block` says beyond the CPU's vitals; nothing on the CPU."""
    if not timer.mode:
        return {}
    return {
        "mode": timer.mode,
        "host_ns": [sample.host_ns for sample in samples],
        "clock_mhz": [sample.clock_mhz for sample in samples],
        "default_clock_mhz": timer.default_clock_mhz,
    }
