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
_BFLOAT16_BITS = 8
_BFLOAT16_SMALLEST_EXPONENT = -133


def store(values: Wide, dtype: Dtype) -> Stored:
    """Round once, to nearest, ties to even; too large becomes inf, NaN stays NaN. The shape is kept."""
    if dtype == "bfloat16":
        return _top_half(_rounded_to_bfloat16(values))
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(_NUMPY[dtype])


def widen(stored: Stored, dtype: Dtype) -> Wide:
    """The stored numbers in float64, exactly."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def _rounded_to_bfloat16(values: Wide) -> Wide:
    """The nearest numbers that bfloat16 has, in float64: going by float32 would round twice."""
    _, exponent = np.frexp(values)
    last_bit = np.maximum(exponent - _BFLOAT16_BITS, _BFLOAT16_SMALLEST_EXPONENT)
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, -last_bit)), last_bit))


def _top_half(values: Wide) -> NDArray[np.uint16]:
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).reshape(-1).view(np.uint32)
    return (bits >> 16).astype(np.uint16).reshape(values.shape)
