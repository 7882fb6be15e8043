"""Candidates whose answer is known: copies of one kernel, and copies after extra work of a known time.

A plugin that only the self-test loads. Importing it imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from attnbench.hookspecs import hookimpl
from attnbench.kit.attention import attention
from attnbench.timing.sample import Timer, timer_for
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup


COPIES = 16
PLANTED = 8
PERCENTS = (3, 5, 10)
PROBE = "probe"
PROBE_ITERATIONS = {16: 400, 512: 100_000, 2048: 1_600_000}
"""By length: what takes a tenth to a half of a call."""
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

    On a CPU it counts down from the number that :func:`telling` gave. On a device it is calibrated here. The
    self-test measures and prints the slowdown that results.

    Raises:
        RuntimeError: :func:`telling` gave no number.
    """
    if setup.case.device != "cpu":
        return plant_on_device(call, setup, percent / 100)
    iterations = msgspec.json.decode(os.environ.get(_TOLD, "{}"), type=dict[int, int])
    if percent not in iterations:
        raise RuntimeError("a planted slowdown is measured by attnbench selftest power alone")
    return counting(iterations[percent], call)


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


def copies(count: int) -> tuple[str, ...]:
    """Names of ``count`` identical candidates; the first is the baseline."""
    return tuple(f"copy_{number}" for number in range(count))


def planted(percent: int, count: int) -> tuple[str, ...]:
    """Names of ``count`` candidates that take ``percent`` % more time than a copy."""
    return tuple(f"plus{percent}_{number}" for number in range(count))


def _slower(percent: int, setup: Setup) -> Call:
    return plant(attention(setup), setup, percent)


def _probe(setup: Setup) -> Call:
    return counting(PROBE_ITERATIONS[setup.case.Lk], attention(setup))


def _probed_length(case: Case, rule: Rule) -> str | None:
    return None if case.Lk in PROBE_ITERATIONS else f"for lengths {sorted(PROBE_ITERATIONS)}"


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Copies, copies slower by a known part, and the probe that calibrates those."""
    for name in copies(COPIES):
        yield Backend(name=name, summary="a copy of one kernel", prepare=attention)
    for percent in PERCENTS:
        for name in planted(percent, PLANTED):
            yield Backend(
                name=name,
                summary=f"the same kernel after extra work of {percent} % of its time",
                prepare=partial(_slower, percent),
            )
    yield Backend(
        name=PROBE,
        summary="the same kernel after counting down from a known number",
        prepare=_probe,
        supports=_probed_length,
    )
