"""Other signs of inputs in the middle of what is timed, with no pause that would tell.

To renew inputs takes a moment, and after a pause a backend may compute what it then gives back until the
next. Here one operation in place, or two, come between two calls like any others: all values change their
signs, and by the plainest of laws so does the answer; or a few elements do, see
:mod:`attnbench.worker.flipped`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import islice, repeat
from time import perf_counter_ns
from typing import Any

from attnbench.timing.sample import Sample, read_vitals, spent_since
from attnbench.timing.timer import Timer
from attnbench.worker.evidence import Evidence
from attnbench.worker.flipped import Flipped, draw_flipped
from attnbench.worker.held import Held
from attnbench.worker.tensors import seen_in_layout

_below = secrets.randbelow

Parts = tuple[Any, ...]


def can_flip(held: Held) -> bool:
    """Whether there is something whose opposite gives the opposite answer.

    Of ``attention`` the values; of a layer its sources, where it has no biases and the rule lets q and k
    change their signs together; where gradients are asked for, the gradient of the output, of any case.
    """
    layer = held.case.layer
    if held.passed is not None or layer is None:
        return True
    return not layer.bias and "flip_features" in held.rule.laws


@dataclass(frozen=True)
class Flip:
    """Where answers to the opposite inputs are kept."""

    evidence: Evidence
    stretch: int

    def begin(self, held: Held) -> Flipped:
        """What is going to change; before the warm calls, so that nothing tells this sample from others.

        It's done once and undone, since code that has not run for a while takes its time.
        """
        which = draw_flipped(held.case)
        parts = _parts(held, held.inputs, which)
        _negate(parts)
        _negate(parts)
        return which

    def sample(
        self, held: Held, timer: Timer, calls: int, turn: int, which: Flipped, *, renewed: bool
    ) -> tuple[Sample, Any]:
        """A sample of ``calls`` calls before any of which, at random, inputs change their signs; and its
        last output. All is as before in the end.

        Of a pool just the copy that comes next, and the output is of its call; on a device all calls, since
        those of a sample are one launch. What the change takes is not in the sample. renewed: whether the
        inputs are those that came within the stretch.
        """
        if held.case.device != "cpu":
            _negate(parts := _parts(held, held.inputs, which))
            sample, output = timer(held.call, *(held.inputs or ()), calls)  # type: ignore[call-arg]
            opposite, call = output, calls - 1
        elif held.pool is None:
            parts = _parts(held, held.inputs, which)
            sample, output = _hot(held, calls, parts)
            opposite, call = output, calls - 1
        else:
            sample, output, opposite, call, parts = _rotating(held, calls, which)
        start = perf_counter_ns()
        self.evidence.keep(held, opposite, self.stretch, turn, call, renewed=renewed, flipped=which)
        _negate(parts)
        self.evidence.spent(perf_counter_ns() - start)
        return sample, output


def _parts(held: Held, inputs: Any, which: Flipped) -> Parts:
    """The tensors, or views of some of their elements, that change their signs."""
    if held.passed is not None:
        return (held.passed.upstream.data,)
    if held.case.layer is not None:
        return tuple(x.data for x in {id(x): x for x in inputs}.values())
    q, _, v = (seen_in_layout(x.data, held.backend.layout) for x in inputs)
    if not which.column:
        return (v,)
    b, h, d = which.column
    return (v[b, h, :, d], *([q[which.query]] if which.query else []))


def _negate(parts: Parts) -> None:
    for part in parts:
        part.neg_()


def _hot(held: Held, calls: int, parts: Parts) -> tuple[Sample, Any]:
    assert held.inputs is not None
    a, b, c = held.inputs
    call, at = held.call, _below(calls)
    first, rest = repeat(None, at), repeat(None, calls - at)
    before, output = read_vitals(), None
    start = perf_counter_ns()
    for _ in first:
        output = call(a, b, c)
    left_ns = perf_counter_ns()
    _negate(parts)
    back_ns = perf_counter_ns()
    for _ in rest:
        output = call(a, b, c)
    stop = perf_counter_ns()
    return Sample(calls, stop - start - (back_ns - left_ns), *spent_since(before)), output


def _rotating(held: Held, calls: int, which: Flipped) -> tuple[Sample, Any, Any, int, Parts]:
    """The sample, its last output, that to inputs of other signs, which call gave it, what changed them."""
    assert held.pool is not None
    call, at = held.call, _below(calls)
    first = islice(held.pool.upcoming, at)
    rest = islice(held.pool.upcoming, calls - at - 1)
    before = read_vitals()
    start = perf_counter_ns()
    for a, b, c in first:
        call(a, b, c)
    left_ns = perf_counter_ns()
    turned = next(held.pool.upcoming)
    _negate(parts := _parts(held, turned, which))
    back_ns = perf_counter_ns()
    output = opposite = call(*turned)
    for a, b, c in rest:
        output = call(a, b, c)
    stop = perf_counter_ns()
    sample = Sample(calls, stop - start - (back_ns - left_ns), *spent_since(before))
    return sample, output, opposite, at, parts
