"""The pool that inputs rotate in: enough copies, apart from each other, in an order that goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.work import POOL_CACHES
from attnbench.ipc.shared_memory import anonymous_file
from attnbench.timing.rotation import Pool, RotatingTimer, Triple, fill

CACHE = 64 * 1024
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

QKV: Shapes = ((2, 3, 5, 7), (2, 1, 9, 7), (2, 1, 9, 4))


def drawn(shapes: Shapes, dtype: torch.dtype = torch.float32) -> Triple:
    rng = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(shape, generator=rng).to(dtype) for shape in shapes)
    return q, k, v


def places(triple: Triple) -> tuple[int, int, int]:
    a, b, c = triple
    return a.data_ptr(), b.data_ptr(), c.data_ptr()


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [(QKV, torch.float64), (((1, 1, 1, 1),) * 3, torch.float32), (((4, 4, 64, 64),) * 3, torch.bfloat16)],
)
def test_copies_are_equal_aligned_apart_and_larger_than_four_caches(
    shapes: Shapes, dtype: torch.dtype
) -> None:
    inputs = drawn(shapes, dtype)
    pool = Pool(inputs, CACHE)
    triples = pool.take(pool.copies)
    spans = []
    for triple in triples:
        for given_, copy in zip(inputs, triple, strict=True):
            assert torch.equal(copy, given_)
            assert copy.is_contiguous()
            assert copy.data_ptr() % 64 == 0
            spans.append((copy.data_ptr(), copy.data_ptr() + copy.nbytes))
    spans += [(x.data_ptr(), x.data_ptr() + x.nbytes) for x in inputs]
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    touched = sum(x.nbytes + 64 + 256 for triple in triples for x in triple)
    assert len(triples) == pool.copies >= 2
    assert touched > POOL_CACHES * CACHE


def test_one_tensor_given_twice_is_one_in_every_copy() -> None:
    x, y, _ = drawn(((2, 5, 8),) * 3)
    for inputs, same in (((x, x, x), (True, True)), ((x, y, y), (False, True)), ((x, y, x), (False, False))):
        pool = Pool(inputs, CACHE)
        triples = pool.take(pool.copies)
        for a, b, c in triples:
            assert (a is b, b is c, a is c) == (same[0], same[1], inputs[0] is inputs[2])
        assert len({places(triple) for triple in triples}) == pool.copies


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 30))
def test_a_copy_is_called_again_only_after_all_others(calls: list[int], warm: int) -> None:
    """However the calls are divided into samples."""
    inputs = drawn(QKV)
    pool = Pool(inputs, 1024)
    seen: list[tuple[int, int, int]] = []
    timer = RotatingTimer(pool)
    timer.warm(lambda a, b, c: seen.append(places((a, b, c))), *inputs, warm)
    for count in calls:
        sample, _ = timer(lambda a, b, c: seen.append(places((a, b, c))), *inputs, count)
        assert sample.calls == count
    assert len(seen) == warm + sum(calls)
    pool.go_to(0)
    triples = pool.take(pool.copies)
    assert seen == [places(triples[turn % pool.copies]) for turn in range(len(seen))]


def test_renewed_inputs_are_in_all_copies_at_the_same_places_and_the_order_begins_anew() -> None:
    inputs = drawn(QKV)
    pool = Pool(inputs, CACHE)
    before = [places(triple) for triple in pool.take(pool.copies)]
    pool.take(5)
    for x in inputs:
        x.mul_(-3)
    pool.refresh()
    triples = pool.take(pool.copies)
    assert [places(triple) for triple in triples] == before
    assert all(
        torch.equal(copy, x)
        for triple in triples
        for copy, x in zip(triple, inputs, strict=True)
    )  # fmt: skip


@pytest.fixture
def memory() -> Iterator[int]:
    fd = anonymous_file()
    yield fd
    os.close(fd)


def test_processes_share_the_copies_and_the_order_but_not_what_a_call_writes(memory: int) -> None:
    q, k, v = drawn(QKV)
    inputs = q, k.transpose(1, 2).contiguous().transpose(1, 2), v
    fill(memory, inputs, CACHE)
    one, other = Pool(inputs, CACHE, memory), Pool(inputs, CACHE, memory)
    for triple in one.take(one.copies):
        for copy, x in zip(triple, inputs, strict=True):
            assert torch.equal(copy, x)
            assert copy.stride() == x.stride()
            copy.zero_()
    other.go_to(other.copies + 3)
    assert places(other.take(1)[0]) == places(other.last)
    assert all(
        torch.equal(copy, x)
        for triple in other.take(other.copies)
        for copy, x in zip(triple, inputs, strict=True)
    )  # fmt: skip


def test_a_slot_of_a_page_that_nothing_is_in_may_hold_nan(memory: int) -> None:
    inputs = drawn(QKV)
    inputs[1][:, :, -1] = torch.nan
    fill(memory, inputs, CACHE)
    pool = Pool(inputs, CACHE, memory)
    assert all(copy[1].isnan().sum() == inputs[1].isnan().sum() for copy in pool.take(pool.copies))


def test_a_shared_pool_of_other_inputs_is_refused(memory: int) -> None:
    fill(memory, drawn(QKV), CACHE)
    other = tuple(x + 1 for x in drawn(QKV))
    with pytest.raises(AssertionError, match="other inputs"):
        Pool(other, CACHE, memory)
