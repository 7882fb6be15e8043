"""Real extra work that makes a kernel slower by a known part of its time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

from attnbench.timing.allocator import pin_allocator

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

CALIBRATION_S = 0.3
_UNIT_ITERATIONS = 2_000
_WARM_CALLS = 3


def plant(call: Call, setup: Setup, part: float) -> Call:
    """``call`` after extra work that takes about ``part`` of its time.

    The work is a loop that counts, of as many iterations as take that time by the fastest of many short
    measurements of both, taken in turns: a disturbance only ever adds time. What it comes to when it is
    measured is for the self-test to say.
    """
    q, k, v = _inputs(setup)
    share = _in_a_child(lambda: _iterations_per_call(call, q, k, v))
    iterations = max(1, round(share * part))

    def slower(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for _ in repeat(None, iterations):
            pass
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


def _iterations_per_call(call: Call, q: Tensor, k: Tensor, v: Tensor) -> float:
    """How many iterations of the loop take as long as one call."""
    for _ in repeat(None, _WARM_CALLS):
        call(q, k, v)
    call_ns = unit_ns = 1 << 62
    end = perf_counter_ns() + int(CALIBRATION_S * 1e9)
    while perf_counter_ns() < end:
        start = perf_counter_ns()
        call(q, k, v)
        call_ns = min(call_ns, perf_counter_ns() - start)
        times = repeat(None, _UNIT_ITERATIONS)
        start = perf_counter_ns()
        for _ in times:
            pass
        unit_ns = min(unit_ns, perf_counter_ns() - start)
    return call_ns / (unit_ns / _UNIT_ITERATIONS)


def _in_a_child(measure: Callable[[], float]) -> float:
    """What ``measure`` gives in a child whose allocator is pinned, as it is when contenders are timed.

    The template's own stays as it is: a copy's does too. One at a time, so that calibrations, which templates
    would do side by side, don't disturb each other.
    """
    with Path(__file__).open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                pin_allocator()
                os.write(writer, repr(measure()).encode())
            finally:
                os._exit(0)
        os.close(writer)
        answer = os.read(reader, 64)
        os.close(reader)
        os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("the planted slowdown could not be calibrated: its process ended early")
    return float(answer)
