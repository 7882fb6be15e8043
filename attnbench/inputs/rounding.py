"""Numbers as a dtype stores them, without torch: bfloat16, unknown to NumPy, as its bits in uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.types.case import Dtype

Stored = NDArray[Any]
Wide = NDArray[np.float64]

EPS: dict[Dtype, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The gap between 1 and the next number; rounding is wrong by at most half of it, relatively."""

_NUMPY: dict[Dtype, type[np.floating[Any]]] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
}
_AT_ONCE = 1 << 15  # steps of a cache's size: a third of the time of one step
# Of float64's 52 stored bits bfloat16 keeps 7; below 2**-126 its numbers are multiples of 2**-133.
_DROPPED_BITS = 45
_SMALLEST_NORMAL = 2.0**-126
_ONLY_MULTIPLES_OF_SMALLEST = 1.5 * 2.0 ** (52 - 133)


def store(values: Wide, dtype: Dtype) -> Stored:
    """Round once, to nearest, ties to even; too large becomes inf, NaN stays NaN. The shape is kept."""
    with np.errstate(all="ignore"):
        if dtype != "bfloat16":
            return values.astype(_NUMPY[dtype])
        flat = np.ascontiguousarray(values).reshape(-1)
        stored = np.empty(flat.shape, np.uint16)
        for start in range(0, len(flat), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            stored[part] = _top_half(_rounded_to_bfloat16(flat[part]))
    return stored.reshape(values.shape)


def widen(stored: Stored, dtype: Dtype) -> Wide:
    """The stored numbers in float64, exactly."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def _rounded_to_bfloat16(values: Wide) -> Wide:
    """The nearest numbers that bfloat16 has, in float64: going by float32 would round twice."""
    bits = values.view(np.uint64)
    half = np.uint64((1 << (_DROPPED_BITS - 1)) - 1)
    last = (bits >> np.uint64(_DROPPED_BITS)) & np.uint64(1)
    rounded = ((bits + half + last) >> np.uint64(_DROPPED_BITS) << np.uint64(_DROPPED_BITS)).view(np.float64)
    # Adding a number whose last bit is worth 2**-133 rounds to its multiples, ties to even.
    tiny = (values + _ONLY_MULTIPLES_OF_SMALLEST) - _ONLY_MULTIPLES_OF_SMALLEST
    rounded = np.where(np.abs(values) < _SMALLEST_NORMAL, np.copysign(tiny, values), rounded)
    return np.where(np.isnan(values), np.nan, rounded)


def _top_half(values: Wide) -> NDArray[np.uint16]:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
