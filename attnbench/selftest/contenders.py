"""Contenders whose answer is known: copies of one kernel, planted slowdowns, and calls that do nothing.

A plugin that only the self-test loads, by its module's name, through the same door as any other. Importing it
imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from attnbench.hookspecs import hookimpl
from attnbench.kit.attention import attention
from attnbench.selftest.planting import counting, plant
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

COPIES = 16
PLANTED = 8
PERCENTS = (3, 5)
NO_OP = "no_op"
INLINE_NO_OP = "inline_no_op"
INLINE_KERNEL = "inline_kernel"
INLINE_NO_OPS = 1000
INLINE_KERNELS = 20
"""How many calls the two inline loops make in each of theirs."""
PROBE = "probe"
PROBE_ITERATIONS = {16: 400, 512: 100_000}
"""By length: what takes a tenth to a half of a call."""


def copies(count: int) -> tuple[str, ...]:
    """Names of ``count`` identical contenders, the first of which is everybody's baseline."""
    return tuple(f"copy_{number}" for number in range(count))


def planted(percent: int, count: int) -> tuple[str, ...]:
    """Names of ``count`` contenders that take ``percent`` % more time than a copy."""
    return tuple(f"plus{percent}_{number}" for number in range(count))


def no_op(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over one key, which is its value: nothing to compute, and right."""
    return v


def inline(call: Call, calls: int) -> Call:
    """A contender whose one call is ``calls`` calls of another in an inline loop over local names."""

    def loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        local = call
        output = v
        for _ in repeat(None, calls):
            output = local(q, k, v)
        return output

    return loop


def _slower(percent: int, setup: Setup) -> Call:
    return plant(attention(setup), setup, percent)


def _probe(setup: Setup) -> Call:
    return counting(PROBE_ITERATIONS[setup.case.Lk], attention(setup))


def _probed_length(case: Case, rule: Rule) -> str | None:
    return None if case.Lk in PROBE_ITERATIONS else f"for lengths {sorted(PROBE_ITERATIONS)}"


def _one_key(case: Case, rule: Rule) -> str | None:
    return (
        None
        if case.Lq == 1 and case.Lk == 1 and case.Hkv == case.H
        else "returns v: only for one key a query"
    )


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Copies first, then what is slower by a known part, then what overhead is measured with."""
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
    yield Backend(name=NO_OP, summary="returns v", prepare=lambda setup: no_op, supports=_one_key)
    yield Backend(
        name=INLINE_NO_OP,
        summary=f"{INLINE_NO_OPS} times v in an inline loop",
        prepare=lambda setup: inline(no_op, INLINE_NO_OPS),
        supports=_one_key,
    )
    yield Backend(
        name=INLINE_KERNEL,
        summary=f"{INLINE_KERNELS} calls of a copy in an inline loop",
        prepare=lambda setup: inline(attention(setup), INLINE_KERNELS),
    )
