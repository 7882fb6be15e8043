"""Inputs that are in no cache when a call reads them: a pool of copies, used one after the other.

Only the inputs rotate. Parameters, memory that the backend holds and the memory of the output stay as warm as
the calls leave them: a layer in use also meets new activations with the same weights.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from random import Random
from typing import TYPE_CHECKING, Any

from attnbench.cases.layouts import reach_of
from attnbench.cases.work import PADDED_TO_BYTES, pool_copies
from attnbench.timing.sample import Call, CpuTimer, Sample, sample_of
from attnbench.types.gc_paused import gc_paused

if TYPE_CHECKING:
    from torch import Tensor

Triple = tuple[Any, ...]


class Pool:
    """Copies of the inputs, together more than four times ``cache_bytes``, and their order.

    Each copy has memory of its own, aligned like an allocation. One tensor given twice is one tensor in
    every copy. The order is drawn once, so that no prefetcher predicts the next copy, and then kept: a copy
    is used again only after all others.
    """

    def __init__(self, inputs: Triple, cache_bytes: int) -> None:
        self.inputs = inputs
        distinct = list({id(x): x for x in inputs}.values())
        self.copies = pool_copies([x.nbytes for x in distinct], cache_bytes)
        self._stacks = [_stack(x, self.copies) for x in distinct]
        # Thousands of objects made here stay: the garbage collector must not visit them.
        with gc_paused():
            self.triples = self._triples(distinct)
            gc.freeze()
        self.refresh()

    def _triples(self, distinct: list[Tensor]) -> tuple[Triple, ...]:
        places = [next(i for i, x in enumerate(distinct) if x is given) for given in self.inputs]
        copies = [stack.unbind(0) for stack in self._stacks]
        made = [tuple(each[place] for place in places) for each in zip(*copies, strict=True)]
        return tuple(made[place] for place in _order(self.copies))

    def refresh(self) -> None:
        """Give every copy the present values of the inputs, and start the order again.

        The first half of the order is written first, so writing the second half evicts it from the caches.
        """
        distinct = {id(x): x for x in self.inputs}.values()
        for half in _halves(self.copies):
            for stack, x in zip(self._stacks, distinct, strict=True):
                stack[half.start : half.stop].copy_(x)
        self.upcoming = _endless(self.triples)


class RotatingTimer(CpuTimer):
    """The timer of a pool; its inputs stand for all their copies."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __call__(self, call: Call, *inputs_and_calls: Any) -> tuple[Sample, Any]:
        """Take a sample of calls on the next copies."""
        *inputs, calls = inputs_and_calls
        assert all(x is y for x, y in zip(inputs, self._pool.inputs, strict=True)), "inputs of another pool"
        return sample_of(call, islice(self._pool.upcoming, calls), calls)


def _stack(x: Tensor, copies: int) -> Tensor:
    """Allocate that many copies of a tensor, (copies, *shape), each with its strides and aligned."""
    import torch

    item = x.element_size()
    room = -(-reach_of(x.shape, x.stride()) * item // PADDED_TO_BYTES) * PADDED_TO_BYTES // item
    rows = torch.empty(copies, room, dtype=x.dtype, device=x.device)
    return rows.as_strided((copies, *x.shape), (room, *x.stride()))


def _order(copies: int) -> list[int]:
    """Return the first half of the copies in random order, then the second."""
    rng = Random(copies)
    return [place for half in _halves(copies) for place in rng.sample(half, len(half))]


def _halves(copies: int) -> tuple[range, range]:
    return range(copies // 2), range(copies // 2, copies)


def _endless(triples: Sequence[Triple]) -> Iterator[Triple]:
    """Repeat the triples without end. The first round happens here, since ``cycle`` allocates during it."""
    upcoming = cycle(triples)
    for _ in islice(upcoming, len(triples)):
        pass
    return upcoming
