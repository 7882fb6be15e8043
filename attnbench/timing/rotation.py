"""Inputs that each call finds out of the caches: a pool of copies, called one after the other.

The inputs rotate. Parameters (of the rule, and projections of the layer) and what the backend
holds are as warm as the calls leave them, and so is the memory of the output, which the allocator hands out
again: a layer in use meets new activations with the same weights.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from math import prod
from random import Random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from attnbench.cases.work import PADDED_TO_BYTES, pool_copies
from attnbench.timing.sample import Call, CpuTimer, Sample, read_vitals, spent_since
from attnbench.types.uncollected import uncollected

if TYPE_CHECKING:
    from torch import Tensor

Triple = tuple[Any, ...]


class Pool:
    """Copies of the inputs, together more than four times ``cache_bytes``, and whose turn it is.

    Each copy has memory of its own, aligned as an allocation is. One tensor given twice is one tensor in
    every copy. Their order is drawn once, so that no prefetcher sees the next one coming, and kept: a copy is
    called again only after all others.
    """

    def __init__(self, inputs: Triple, cache_bytes: int) -> None:
        self.inputs = inputs
        distinct = list({id(x): x for x in inputs}.values())
        self.copies = pool_copies([x.nbytes for x in distinct], cache_bytes)
        self._stacks = [_stack(x, self.copies) for x in distinct]
        # Thousands of objects made here will stay: no collection looks through them, now or later.
        with uncollected():
            self.triples = self._triples(distinct)
            gc.freeze()
        self.refresh()

    def _triples(self, distinct: list[Tensor]) -> tuple[Triple, ...]:
        places = [next(i for i, x in enumerate(distinct) if x is given) for given in self.inputs]
        copies = [stack.unbind(0) for stack in self._stacks]
        made = [tuple(each[place] for place in places) for each in zip(*copies, strict=True)]
        return tuple(made[place] for place in _order(self.copies))

    def refresh(self) -> None:
        """Give every copy the values that the inputs have now, and begin anew.

        The half of the copies that comes first was written first: the other half drove it out of the caches.
        """
        distinct = {id(x): x for x in self.inputs}.values()
        for half in _halves(self.copies):
            for stack, x in zip(self._stacks, distinct, strict=True):
                stack[half.start : half.stop].copy_(x)
        self.upcoming = _endless(self.triples)


class RotatingTimer(CpuTimer):
    """The timer of a pool: the inputs it is given stand for all their copies."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __call__(self, call: Call, *inputs_and_calls: Any) -> tuple[Sample, Any]:
        """A sample of calls, on the copies that come next."""
        *inputs, calls = inputs_and_calls
        self._check(*inputs)
        return take_sample_rotating(call, self._pool.upcoming, calls)

    def warm(self, call: Call, *inputs_and_calls: Any) -> None:
        """Make calls that are not timed, on the copies that come next."""
        *inputs, calls = inputs_and_calls
        self._check(*inputs)
        take_sample_rotating(call, self._pool.upcoming, calls)

    def _check(self, *inputs: Any) -> None:
        assert all(x is y for x, y in zip(inputs, self._pool.inputs, strict=True)), "inputs of another pool"


def take_sample_rotating(call: Call, upcoming: Iterator[Triple], calls: int) -> tuple[Sample, Any]:
    """Make ``calls`` calls back to back, each on the next inputs; return the sample and the last output.

    As :func:`~attnbench.timing.sample.take_sample`; the loop goes through tuples that are there already.
    """
    before = read_vitals()
    output = None
    triples = islice(upcoming, calls)
    start = perf_counter_ns()
    for inputs in triples:
        output = call(*inputs)
    stop = perf_counter_ns()
    return Sample(calls, stop - start, *spent_since(before)), output


def _stack(x: Tensor, copies: int) -> Tensor:
    """Room for so many copies of a tensor, (copies, *shape), each contiguous and aligned."""
    import torch

    room = -(-x.nbytes // PADDED_TO_BYTES) * PADDED_TO_BYTES // x.element_size()
    rows = torch.empty(copies, room, dtype=x.dtype, device=x.device)
    return rows[:, : prod(x.shape)].view(copies, *x.shape)


def _order(copies: int) -> list[int]:
    """The first half of the copies in random order, then the second."""
    rng = Random(copies)
    return [place for half in _halves(copies) for place in rng.sample(half, len(half))]


def _halves(copies: int) -> tuple[range, range]:
    return range(copies // 2), range(copies // 2, copies)


def _endless(triples: Sequence[Triple]) -> Iterator[Triple]:
    """Round and round. The first round is gone through here: then ``cycle`` makes nothing new any more."""
    upcoming = cycle(triples)
    for _ in islice(upcoming, len(triples)):
        pass
    return upcoming
