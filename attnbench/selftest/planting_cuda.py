"""Real extra work on a device: a kernel that spins for a number of its clock's cycles."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from attnbench.timing.timer import Timer, timer_for

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

_CALLS = 50
_SAMPLES = 15
_LONG_CYCLES = 200_000


def plant_on_device(call: Call, setup: Setup, part: float) -> Call:
    """``call`` after a kernel that takes about ``part`` of its time, timed as runs time it.

    A kernel of no cycles takes a microsecond or so: of a call so short that this is more than the part, the
    slowdown is larger than asked for.
    """
    import torch

    # Not public, but what torch's own tests keep a device busy with; it can stand in a graph.
    spin: Callable[[int], None] = torch.cuda._sleep  # type: ignore[no-untyped-call, unused-ignore]
    return _after(spin, cycles(call, spin, _inputs(setup), part, timer_for("cuda")), call)


def cycles(
    call: Call, spin: Callable[[int], None], inputs: tuple[Any, Any, Any], part: float, timer: Timer
) -> int:
    """How many cycles of spinning make ``call`` slower by ``part``, the kernel's own launch included."""

    def call_ns(timed: Call) -> float:
        timer.warm(timed, *inputs, _CALLS)
        return median(timer(timed, *inputs, _CALLS)[0].wall_ns / _CALLS for _ in range(_SAMPLES))

    alone_ns = call_ns(call)
    least_ns = call_ns(_after(spin, 0, call))
    cycle_ns = (call_ns(_after(spin, _LONG_CYCLES, call)) - least_ns) / _LONG_CYCLES
    if cycle_ns <= 0:
        raise RuntimeError("the planted slowdown could not be calibrated: spinning takes no time here")
    return max(0, round((alone_ns * (1 + part) - least_ns) / cycle_ns))


def _after(spin: Callable[[int], None], count: int, call: Call) -> Call:
    def slower(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        spin(count)
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
