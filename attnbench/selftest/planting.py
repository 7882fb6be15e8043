"""Real extra work that makes a kernel slower by a known part of its time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

from attnbench.selftest.planting_cuda import plant_on_device
from attnbench.timing.allocator import pin_allocator

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

CALIBRATION_S = 0.3
_WARM_CALLS = 3
_FIRST_ITERATIONS = 1_000
_SHORT_TRIES = 200
_BLOCK_NS = 300_000
"""About what a sample lasts."""


def plant(call: Call, setup: Setup, part: float) -> Call:
    """``call`` after extra work that takes about ``part`` of its time.

    The work is counting down. How many iterations take as long as the call is the median over many pairs of
    a call and a loop that takes about as long, one right after the other, so that whatever disturbs them
    disturbs both alike. What it comes to when it is measured is for the self-test to say.
    """
    if setup.case.device != "cpu":
        return plant_on_device(call, *_inputs(setup), part)
    return _after(_in_a_child(lambda: _iterations(call, *_inputs(setup), part)), call)


def _after(iterations: int, call: Call) -> Call:
    # A while loop, since it leaves the processor's memory of branches and code as it is: making an iterator
    # of the standard library costs the call that follows a microsecond.
    def slower(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        left = iterations
        while left:
            left -= 1
        return call(q, k, v)

    return slower


def _inputs(setup: Setup) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    from attnbench.kit.dtypes import case_dtype

    case = setup.case
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device=case.device, dtype=case_dtype(case))

    return (
        normal(case.B, case.H, case.Lq, case.D),
        normal(case.B, case.Hkv, case.Lk, case.D),
        normal(case.B, case.Hkv, case.Lk, case.Dv),
    )


def _iterations(call: Call, q: Tensor, k: Tensor, v: Tensor, part: float) -> int:
    """How many iterations make ``call`` slower by ``part``, the function around them included."""
    for _ in repeat(None, _WARM_CALLS):
        call(q, k, v)
    iteration_ns = min(_loop_ns(_FIRST_ITERATIONS) for _ in range(_SHORT_TRIES)) / _FIRST_ITERATIONS
    like_a_call = max(1, round(_block_ns(call, q, k, v, 1) / iteration_ns))
    end = perf_counter_ns() + int(CALIBRATION_S * 1e9 / 2)
    loops: list[float] = []
    calls_ns: list[int] = []
    while not loops or perf_counter_ns() < end:
        calls_ns.append(_block_ns(call, q, k, v, 1))
        loops.append(calls_ns[-1] / _loop_ns(like_a_call))
    per_call = like_a_call * median(loops)
    return max(0, round(per_call * (part - _wrapping(call, q, k, v, median(calls_ns)))))


def _wrapping(call: Call, q: Tensor, k: Tensor, v: Tensor, call_ns: float) -> float:
    """What the function around the loop adds without an iteration, as a part of the call; 0 of long calls."""
    calls = int(_BLOCK_NS / call_ns)
    if calls < 2:
        return 0.0
    wrapped = _after(0, call)
    end = perf_counter_ns() + int(CALIBRATION_S * 1e9 / 2)
    ratios: list[float] = []
    while not ratios or perf_counter_ns() < end:
        # Either goes first every other time: what follows a change of code is slower.
        pair = [call, wrapped] if len(ratios) % 2 else [wrapped, call]
        spent_ns = {one: _block_ns(one, q, k, v, calls) for one in pair}
        ratios.append(spent_ns[wrapped] / spent_ns[call])
    return max(0.0, median(ratios) - 1)


def _block_ns(call: Call, q: Tensor, k: Tensor, v: Tensor, calls: int) -> int:
    start = perf_counter_ns()
    for _ in repeat(None, calls):
        call(q, k, v)
    return perf_counter_ns() - start


def _loop_ns(iterations: int) -> int:
    left = iterations
    start = perf_counter_ns()
    while left:
        left -= 1
    return perf_counter_ns() - start


def _in_a_child(measure: Callable[[], int]) -> int:
    """What ``measure`` gives in a child whose allocator is pinned, as it is when contenders are timed.

    The template itself makes no call and no array, as a copy's makes none: what they leave behind in memory
    makes its children slower or faster. One at a time, so that calibrations, which templates
    would do side by side, don't disturb each other.
    """
    with Path(__file__).open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                pin_allocator()
                os.write(writer, str(measure()).encode())
            finally:
                os._exit(0)
        os.close(writer)
        answer = os.read(reader, 64)
        os.close(reader)
        os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("the planted slowdown could not be calibrated: its process ended early")
    return int(answer)
