"""Inputs that are in no cache when a call reads them: a pool of copies, used one after the other.

Only the inputs rotate. Parameters, memory that the backend holds and the memory of the output stay as warm as
the calls leave them: a layer in use also meets new activations with the same weights.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from attnbench.cases.layouts import reach_of
from attnbench.cases.work import PADDED_TO_BYTES, pool_copies
from attnbench.kit.dtypes import same_bits
from attnbench.timing.sample import Call, CpuTimer, Sample, sample_of

if TYPE_CHECKING:
    from torch import Tensor

Triple = tuple[Any, ...]

_MADV_POPULATE_READ = 22


class Pool:
    """Copies of the inputs, together more than four times ``cache_bytes``, and their order.

    Each copy has memory of its own, aligned like an allocation. One tensor given twice is one tensor in
    every copy. The order is drawn once, so that no prefetcher predicts the next copy, and then kept: a copy
    is used again only after all others.

    memory: a descriptor that :func:`fill` has filled with these inputs, for several processes; None for
    memory of this process, which has the inputs already. stacks: all copies of each tensor. last: the copy of
    the last call.
    """

    def __init__(self, inputs: Triple, cache_bytes: int, memory: int | None = None) -> None:
        self.inputs = inputs
        distinct = _distinct(inputs)
        self._places = [next(i for i, x in enumerate(distinct) if x is given) for given in inputs]
        self.copies = _copies(distinct, cache_bytes)
        self._own = memory is None
        # What a call writes to its inputs stays in its process.
        access = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
        self._shared = None if memory is None else mmap.mmap(memory, 0, **access)
        self.stacks = _stacks(_memory(self._shared, distinct, self.copies), distinct, self.copies)
        self._order = _order(self.copies)
        self.last = self._copy(self._order[0])
        self._made: list[Triple] = []
        self.refresh()

    def refresh(self) -> None:
        """Give every copy the present values of the inputs, and start the order again.

        The first half of the order is written first, so writing the second half evicts it from the caches.
        What several processes share keeps its values: the inputs must have them.
        """
        if self._own:
            _write(self.stacks, _distinct(self.inputs), self.copies)
        elif not all(
            same_bits(stack[0], x) for stack, x in zip(self.stacks, _distinct(self.inputs), strict=True)
        ):
            raise AssertionError("the shared pool has other inputs")
        self.go_to(0)

    def go_to(self, place: int) -> None:
        """Go on from a place of the order, counted on from round to round."""
        self._next = place % self.copies
        self._made = []

    def make(self, calls: int) -> None:
        """Make the tensors of the next copies before untimed calls, so that nothing comes between them and
        timed ones.

        A program makes the tensors of a step anew too.
        """
        for _ in range(calls - len(self._made)):
            self._made.append(self._copy(self._order[self._next]))
            self._next = (self._next + 1) % self.copies

    def take(self, calls: int) -> list[Triple]:
        """Return the next copies, one for each call."""
        self.make(calls)
        taken, self._made = self._made[:calls], self._made[calls:]
        self.last = taken[-1] if taken else self.last
        return taken

    def _copy(self, at: int) -> Triple:
        made = [stack[at] for stack in self.stacks]
        if self._shared is not None:
            for x in made:
                _map_pages(self._shared, x)
        return tuple(made[place] for place in self._places)


class RotatingTimer(CpuTimer):
    """The timer of a pool; its inputs stand for all their copies."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __call__(self, call: Call, *inputs_and_calls: Any) -> tuple[Sample, Any]:
        """Take a sample of calls on the next copies."""
        *inputs, calls = inputs_and_calls
        assert all(x is y for x, y in zip(inputs, self._pool.inputs, strict=True)), "inputs of another pool"
        return sample_of(call, iter(self._pool.take(calls)), calls)


def fill(memory: int, inputs: Triple, cache_bytes: int) -> None:
    """Give the file of a descriptor the size of a pool of these inputs, and fill it with copies."""
    import os

    import torch

    distinct = _distinct(inputs)
    copies = _copies(distinct, cache_bytes)
    os.ftruncate(memory, _bytes(distinct, copies))
    shared = torch.frombuffer(mmap.mmap(memory, 0), dtype=torch.uint8)
    _write(_stacks(shared, distinct, copies), distinct, copies)


def _distinct(inputs: Triple) -> list[Tensor]:
    return list({id(x): x for x in inputs}.values())


def _copies(distinct: Sequence[Tensor], cache_bytes: int) -> int:
    return pool_copies([x.nbytes for x in distinct], cache_bytes)


def _memory(shared: mmap.mmap | None, distinct: Sequence[Tensor], copies: int) -> Tensor:
    """Return the bytes of a pool: shared ones, or new ones of this process."""
    import torch

    if shared is None:
        return torch.empty(_bytes(distinct, copies), dtype=torch.uint8)
    return torch.frombuffer(shared, dtype=torch.uint8)


def _map_pages(shared: mmap.mmap, x: Tensor) -> None:
    """Map the pages of a tensor, so that a timed call finds them, without reading them.

    All pages at once would be half a million in each worker. Linux before 5.14 has no such request; there a
    call faults once for 16 pages.
    """
    begin = int(x.storage_offset()) * x.element_size()
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    with suppress(OSError):
        shared.madvise(_MADV_POPULATE_READ, first, begin + _room_bytes(x) - first)


def _room_bytes(x: Tensor) -> int:
    """Return the bytes from one copy of a tensor to the next: those that it reaches over, aligned."""
    reach = reach_of(x.shape, x.stride()) * x.element_size()
    return -(-reach // PADDED_TO_BYTES) * PADDED_TO_BYTES


def _bytes(distinct: Sequence[Tensor], copies: int) -> int:
    return copies * sum(map(_room_bytes, distinct))


def _stacks(memory: Tensor, distinct: Sequence[Tensor], copies: int) -> list[Tensor]:
    """Return the copies of each tensor, (copies, *shape), in bytes of memory; each has its strides."""
    stacks, begin = [], 0
    for x in distinct:
        end = begin + copies * _room_bytes(x)
        rows = memory[begin:end].view(x.dtype)
        strides = (_room_bytes(x) // x.element_size(), *x.stride())
        stacks.append(rows.as_strided((copies, *x.shape), strides))
        begin = end
    return stacks


def _write(stacks: Sequence[Tensor], distinct: Sequence[Tensor], copies: int) -> None:
    for half in _halves(copies):
        for stack, x in zip(stacks, distinct, strict=True):
            stack[half.start : half.stop].copy_(x)


def _order(copies: int) -> list[int]:
    """Return the first half of the copies in random order, then the second."""
    rng = Random(copies)
    return [place for half in _halves(copies) for place in rng.sample(half, len(half))]


def _halves(copies: int) -> tuple[range, range]:
    return range(copies // 2), range(copies // 2, copies)
