from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from maths_tools import stored_bits

from attnbench.inputs.draw import EPS, store, widen
from attnbench.types.case import DTYPES

HALVES = ["bfloat16", "float16"]
LARGEST = {"bfloat16": 2.0**127 * (2 - 2**-7), "float16": 65504.0}
SMALLEST = {"bfloat16": 2.0**-133, "float16": 2.0**-24}


def neighbours(value: float, dtype: str) -> tuple[float, float]:
    """The next number of the dtype at or below a value and the next above, by arithmetic on its grid."""
    exponent = math.frexp(value)[1]
    kept, lowest = (8, -133) if dtype == "bfloat16" else (11, -24)
    step = 2.0 ** max(exponent - kept, lowest)
    below = math.floor(value / step) * step
    return below, below + step


@pytest.mark.parametrize("dtype", HALVES)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_rounds_float64_once_to_nearest(dtype: str, value: float) -> None:
    got = float(widen(store(np.array([value]), dtype), dtype)[0])
    below, above = neighbours(value, dtype)
    if abs(value) > LARGEST[dtype]:
        assert got in (math.copysign(LARGEST[dtype], value), math.copysign(math.inf, value))
    elif value - below != above - value:
        assert got == (below if value - below < above - value else above)
    else:
        assert got in (below, above)


@pytest.mark.parametrize("dtype", HALVES)
@given(bits=st.integers(0, 0x7BFE))
def test_a_tie_goes_to_the_even_one(dtype: str, bits: int) -> None:
    pair = np.array([bits, bits + 1], np.uint16)
    if dtype == "float16":
        pair = pair.view(np.float16)
    low, high = (float(x) for x in widen(pair, dtype))
    middle = store(np.array([(low + high) / 2]), dtype).view(np.uint16)[0]
    assert middle == bits + bits % 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@given(st.lists(st.floats(width=32), min_size=1))
def test_agrees_with_torch_on_float32(dtype: str, values: list[float]) -> None:
    theirs = stored_bits(torch.tensor(values, dtype=torch.float32).to(getattr(torch, dtype)))
    ours = store(np.array(values, np.float64), dtype)
    wide, their_wide = widen(ours, dtype), widen(theirs, dtype)
    np.testing.assert_array_equal(wide, their_wide)
    zero = wide == 0
    np.testing.assert_array_equal(np.signbit(wide[zero]), np.signbit(their_wide[zero]))


def test_does_not_round_twice_as_torch_does() -> None:
    # Just above the middle between 1 and the next bfloat16; float32 first would make it the middle.
    value = 1 + 2.0**-8 + 2.0**-40
    assert float(widen(store(np.array([value]), "bfloat16"), "bfloat16")[0]) == 1 + 2.0**-7
    assert float(torch.tensor(value, dtype=torch.float64).to(torch.bfloat16)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_number_stays_that(dtype: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308])
    back = widen(store(values, dtype), dtype)
    assert np.isnan(back[0])
    np.testing.assert_array_equal(back[1:3], [np.inf, -np.inf])
    assert list(np.signbit(back[3:5])) == [False, True]
    expected = [1e308, -1e308] if dtype == "float64" else [np.inf, -np.inf]
    np.testing.assert_array_equal(back[5:], expected)


@pytest.mark.parametrize("payload", [0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF])
def test_no_nan_turns_into_a_number(payload: int) -> None:
    values = np.array([payload], np.uint64).view(np.float64)
    assert np.isnan(widen(store(values, "bfloat16"), "bfloat16")[0])


@pytest.mark.parametrize("dtype", HALVES)
def test_the_smallest_and_largest_numbers(dtype: str) -> None:
    tiny, large = SMALLEST[dtype], LARGEST[dtype]
    values = np.array([tiny, tiny / 2, tiny * 0.51, large, large * (1 + EPS[dtype] / 8)])
    np.testing.assert_array_equal(widen(store(values, dtype), dtype), [tiny, 0, tiny, large, large])


@pytest.mark.parametrize("dtype", DTYPES)
def test_eps_is_what_the_dtype_has(dtype: str) -> None:
    assert EPS[dtype] == torch.finfo(getattr(torch, dtype)).eps
    assert widen(store(np.array([1 + EPS[dtype]]), dtype), dtype)[0] == 1 + EPS[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_and_strides_are_no_matter(dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((40, 30, 50))
    turned = store(values.transpose(2, 0, 1), dtype)
    assert turned.shape == (50, 40, 30)
    np.testing.assert_array_equal(turned, store(values, dtype).transpose(2, 0, 1))
    assert store(np.array(1.5), dtype).shape == ()
