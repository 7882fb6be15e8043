"""Timing on the CPU: a call has done its work when it returns."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from attnbench.timing.sample import Call, take_sample
from attnbench.types.record import DeviceMode


class CpuTimer:
    """The :class:`~attnbench.timing.timer.Timer` of the CPU. Called, it's :func:`take_sample` itself."""

    mode: DeviceMode = ""
    default_clock_mhz = 0
    __call__ = staticmethod(take_sample)

    def warm(self, call: Call, a: Any, b: Any, c: Any, calls: int) -> None:
        """Make calls that are not timed, each output dropped after the next is there, as in a sample."""
        output = None
        for _ in repeat(None, calls):
            output = call(a, b, c)
        del output

    def settle(self) -> None:
        """Nothing is left to wait for."""
