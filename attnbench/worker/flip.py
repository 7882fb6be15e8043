"""The opposite inputs in the middle of what is timed, with no pause that would tell.

To renew inputs takes a moment, and after a pause a backend may compute what it then gives back until the
next. Here one operation in place comes between two calls like any others: the values change their signs, and
by the plainest of laws so does the answer.
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
from attnbench.worker.held import Held

_below = secrets.randbelow


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

    def sample(self, held: Held, timer: Timer, calls: int, turn: int, *, renewed: bool) -> tuple[Sample, Any]:
        """A sample of ``calls`` calls before any of which, at random, the inputs change their signs; and its
        last output. All is as before in the end.

        Of a pool just the copy that comes next, and the output is of its call; on a device all calls, since
        those of a sample are one launch. What the change takes is not in the sample. renewed: whether the
        inputs are those that came within the stretch.
        """
        if held.case.device != "cpu":
            _negate(held, held.inputs)
            sample, output = timer(held.call, *(held.inputs or ()), calls)  # type: ignore[call-arg]
            opposite, call, turned = output, calls - 1, held.inputs
        elif held.pool is None:
            sample, output = _hot(held, calls)
            opposite, call, turned = output, calls - 1, held.inputs
        else:
            sample, output, opposite, call, turned = _rotating(held, calls)
        start = perf_counter_ns()
        self.evidence.keep(held, opposite, self.stretch, turn, call, renewed=renewed, flipped=True)
        _negate(held, turned)
        self.evidence.spent(perf_counter_ns() - start)
        return sample, output


def _negate(held: Held, inputs: Any) -> None:
    if held.passed is not None:
        held.passed.upstream.data.neg_()
    elif held.case.layer is None:
        inputs[2].data.neg_()
    else:
        for x in {id(x): x for x in inputs}.values():
            x.data.neg_()


def _hot(held: Held, calls: int) -> tuple[Sample, Any]:
    assert held.inputs is not None
    a, b, c = held.inputs
    call, at = held.call, _below(calls)
    first, rest = repeat(None, at), repeat(None, calls - at)
    before, output = read_vitals(), None
    start = perf_counter_ns()
    for _ in first:
        output = call(a, b, c)
    left_ns = perf_counter_ns()
    _negate(held, held.inputs)
    back_ns = perf_counter_ns()
    for _ in rest:
        output = call(a, b, c)
    stop = perf_counter_ns()
    return Sample(calls, stop - start - (back_ns - left_ns), *spent_since(before)), output


def _rotating(held: Held, calls: int) -> tuple[Sample, Any, Any, int, Any]:
    """The sample, its last output, that to the opposite inputs, which call gave it, and those inputs."""
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
    _negate(held, turned)
    back_ns = perf_counter_ns()
    output = opposite = call(*turned)
    for a, b, c in rest:
        output = call(a, b, c)
    stop = perf_counter_ns()
    sample = Sample(calls, stop - start - (back_ns - left_ns), *spent_since(before))
    return sample, output, opposite, at, turned
