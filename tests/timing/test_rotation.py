"""The pool that inputs rotate in: enough copies, apart from each other, in an order that goes on."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.work import POOL_CACHES
from attnbench.timing.rotation import Pool, RotatingTimer, Triple

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
    spans = []
    for triple in pool.triples:
        for given_, copy in zip(inputs, triple, strict=True):
            assert torch.equal(copy, given_)
            assert copy.is_contiguous()
            assert copy.data_ptr() % 64 == 0
            spans.append((copy.data_ptr(), copy.data_ptr() + copy.nbytes))
    spans += [(x.data_ptr(), x.data_ptr() + x.nbytes) for x in inputs]
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    touched = sum(x.nbytes + 64 + 256 for triple in pool.triples for x in triple)
    assert len(pool.triples) == pool.copies >= 2
    assert touched > POOL_CACHES * CACHE


def test_one_tensor_given_twice_is_one_in_every_copy() -> None:
    x, y, _ = drawn(((2, 5, 8),) * 3)
    for inputs, same in (((x, x, x), (True, True)), ((x, y, y), (False, True)), ((x, y, x), (False, False))):
        pool = Pool(inputs, CACHE)
        for a, b, c in pool.triples:
            assert (a is b, b is c, a is c) == (same[0], same[1], inputs[0] is inputs[2])
        assert len({places(triple) for triple in pool.triples}) == pool.copies


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
    assert seen == [places(pool.triples[turn % pool.copies]) for turn in range(len(seen))]


def test_renewed_inputs_are_in_all_copies_at_the_same_places_and_the_order_begins_anew() -> None:
    inputs = drawn(QKV)
    pool = Pool(inputs, CACHE)
    before = [places(triple) for triple in pool.triples]
    list(islice(pool.upcoming, 5))
    for x in inputs:
        x.mul_(-3)
    pool.refresh()
    assert [places(triple) for triple in pool.triples] == before
    assert all(
        torch.equal(copy, x)
        for triple in pool.triples
        for copy, x in zip(triple, inputs, strict=True)
    )  # fmt: skip
    assert places(next(pool.upcoming)) == before[0]
