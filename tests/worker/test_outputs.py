"""Where the elements of an output lie: each in a place of its own, none in memory of others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import parse_case
from attnbench.types.backend import Layout
from attnbench.types.case import output_shape
from attnbench.worker.failures import WrongOutput
from attnbench.worker.outputs import each_has_a_place, shares_memory, stored_output

CASE = parse_case("attention/dot/B2-H3-Lq4-Lk5-D6-Dv7/none/float32")
SHAPE = output_shape(CASE)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=4))
def test_each_element_has_a_place_where_no_two_offsets_are_equal(axes: list[tuple[int, int]]) -> None:
    shape, strides = [size for size, _ in axes], [stride for _, stride in axes]
    places = [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in product(*map(range, shape))
    ]
    assert len(set(places)) == len(places) or not each_has_a_place(shape, strides)


@given(st.permutations([5, 4, 3, 2]), st.permutations(range(4)))
def test_any_order_of_axes_in_memory_will_do(shape: list[int], order: list[int]) -> None:
    view = torch.zeros([shape[axis] for axis in order]).permute(*[order.index(axis) for axis in range(4)])
    assert each_has_a_place(view.shape, view.stride())
    assert each_has_a_place(view[:, ::2, 1:].shape, view[:, ::2, 1:].stride())


@given(st.integers(0, 12), st.integers(1, 8), st.integers(0, 12), st.integers(1, 8))
def test_slices_share_memory_where_they_overlap(at: int, size: int, other_at: int, other_size: int) -> None:
    whole = torch.zeros(20)
    a, b = whole[at : at + size], whole[other_at : other_at + other_size]
    overlap = bool(set(range(at, at + size)) & set(range(other_at, other_at + other_size)))
    assert shares_memory(a, b) == shares_memory(b, a) == overlap


@pytest.mark.parametrize(
    ("make", "layout", "words"),
    [
        (lambda x: None, "BHLD", "the output is a NoneType, not a torch.Tensor"),
        (lambda x: x.numpy(), "BHLD", "the output is a ndarray, not a torch.Tensor"),
        (lambda x: x.swapaxes(1, 2), "BHLD", "has shape (2, 4, 3, 7); (2, 3, 4, 7) is asked for"),
        (lambda x: x, "BLHD", "has shape (2, 3, 4, 7); (2, 4, 3, 7) is asked for"),
        (lambda x: x.sum(), "BHLD", "has shape (); (2, 3, 4, 7) is asked for"),
        (lambda x: x.to(torch.complex64), "BHLD", "has dtype complex64; float32 is asked for"),
        (lambda x: x.to("meta"), "BHLD", "is on meta; cpu is asked for"),
        (lambda x: x[0, 0, 0].expand(SHAPE), "BHLD", "share one place in memory: strides (0, 0, 0, 1)"),
        (lambda x: x.as_strided(SHAPE, (40, 20, 5, 1)), "BHLD", "share one place in memory"),
        (lambda x: x.to_sparse(), "BHLD", "has layout sparse_coo; a dense tensor"),
        (torch._neg_view, "BHLD", "is a lazy view"),
    ],
)
def test_wrong_outputs_are_described(
    make: Callable[[torch.Tensor], object], layout: Layout, words: str
) -> None:
    with pytest.raises(WrongOutput) as wrong:
        stored_output(make(torch.zeros(SHAPE)), CASE, SHAPE, layout)
    assert words in str(wrong.value)
