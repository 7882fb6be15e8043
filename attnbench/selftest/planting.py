"""Real extra work that makes a kernel slower by a known part of its time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from attnbench.selftest.planting_cuda import plant_on_device

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

_TOLD = "ATTNBENCH_SELFTEST_ITERATIONS"


@contextmanager
def telling(iterations: Mapping[int, int]) -> Iterator[None]:
    """Tell processes started meanwhile how many iterations make a slowdown of so many percent."""
    before = os.environ.get(_TOLD)
    os.environ[_TOLD] = msgspec.json.encode(dict(iterations)).decode()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_TOLD]
        else:
            os.environ[_TOLD] = before


def plant(call: Call, setup: Setup, percent: int) -> Call:
    """``call`` after extra work that takes ``percent`` % of its time.

    On a CPU the work is counting down, as far as :func:`telling` said; what takes long to find out is found
    out once (:mod:`~attnbench.selftest.calibration`), so that planted ones are prepared like copies are. On a
    device it is calibrated here. What it comes to when it is measured is for the self-test to say.

    Raises:
        RuntimeError: nobody has told how far to count.
    """
    if setup.case.device != "cpu":
        return plant_on_device(call, setup, percent / 100)
    told = msgspec.json.decode(os.environ.get(_TOLD, "{}"), type=dict[int, int])
    if percent not in told:
        raise RuntimeError("a planted slowdown is measured by attnbench selftest power alone")
    return counting(told[percent], call)


def counting(iterations: int, call: Call) -> Call:
    """``call`` after counting down from ``iterations``."""

    # A while loop, since it leaves the processor's memory of branches and code as it is: making an iterator
    # of the standard library costs the call that follows a microsecond.
    def slower(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        left = iterations
        while left:
            left -= 1
        return call(q, k, v)

    return slower
