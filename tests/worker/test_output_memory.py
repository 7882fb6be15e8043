"""Where the elements of an output lie: each in a place of its own, none in memory of others."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import parse_case
from attnbench.types.case import output_shape
from attnbench.worker.outputs import (
    WrongOutput,
    check_output,
    each_has_a_place,
    shares_memory,
)

CASE = parse_case("attention/dot/B2-H3-Lq4-Lk5-D6-Dv7/none/float32")
SHAPE = output_shape(CASE)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=4))
def test_each_element_has_a_place_where_no_two_offsets_are_equal(axes: list[tuple[int, int]]) -> None:
    shape, strides = [size for size, _ in axes], [stride for _, stride in axes]
    places = [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in product(*map(range, shape))
    ]
    assert each_has_a_place(shape, strides) == (len(set(places)) == len(places))


def test_axes_that_interleave_may_miss_each_other() -> None:
    assert each_has_a_place((2, 3), (3, 2))
    assert not each_has_a_place((2, 4), (6, 2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.zeros(7).expand(2, 3, 4, 7), "share one place in memory: strides (0, 0, 0, 1)"),
        (lambda: torch.zeros(200).as_strided(SHAPE, (40, 20, 5, 1)), "share one place in memory"),
        (lambda: torch.zeros(SHAPE).to_sparse(), "has layout sparse_coo; a dense tensor"),
        (lambda: torch._neg_view(torch.zeros(SHAPE)), "is a lazy view"),
    ],
)
def test_what_is_not_in_memory_as_it_should_be_is_no_output(make: object, words: str) -> None:
    with pytest.raises(WrongOutput) as wrong:
        check_output(make(), CASE, SHAPE, "BHLD")  # type: ignore[operator]
    assert words in str(wrong.value)


@given(st.integers(0, 12), st.integers(1, 8), st.integers(0, 12), st.integers(1, 8))
def test_slices_share_memory_where_they_overlap(at: int, size: int, other_at: int, other_size: int) -> None:
    whole = torch.zeros(20)
    a, b = whole[at : at + size], whole[other_at : other_at + other_size]
    overlap = bool(set(range(at, at + size)) & set(range(other_at, other_at + other_size)))
    assert shares_memory(a, b) == shares_memory(b, a) == overlap
