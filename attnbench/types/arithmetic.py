"""Arithmetics: how exactly a backend multiplies, where that is coarser than the dtype of a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from attnbench.types.case import Dtype

Arithmetic = Literal["float32", "tf32", "float16", "bfloat16", "int8", "float8_e4m3"]
"""The format to which the operands of products are rounded; they are summed in float32 or wider."""

UNIT: Mapping[str, float] = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "tf32": 2.0**-10,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "int8": 2.0**-4,
    "float8_e4m3": 2.0**-3,
}
"""The gap between 1 and the next number. int8 has steps of 1/127 of the largest number of a head, which is
about four times the root mean square: as large as the error of numbers with this gap."""

ARITHMETICS: tuple[Arithmetic, ...] = ("float32", "tf32", "float16", "bfloat16", "int8", "float8_e4m3")

ASSUMED: tuple[Arithmetic, ...] = ("float32", "tf32", "bfloat16")
"""Those that the judge assumes of a backend that declares none. The limits of others would hide mistakes."""


SUM_ERROR = 0.15
"""A sum of n numbers of random signs, added one after the other, is off by about ``SUM_ERROR`` · sqrt(n) eps.
Each addition is off by 0.21 eps of the sum so far (evenly within half a gap, which is eps / 2 to eps of the
number), and the squares of these sums add up to n² / 2 squares of a term. Source of the growth with sqrt(n):
Higham and Mary, A new approach to probabilistic rounding error analysis, 2019."""

EXP_ERROR = 8.0
"""Limits are twice the unit, so that an exp within 20 ulp passes: an ulp is eps / 2 to eps of a number, 0.72
eps on average, and 20 · 0.72 < 2 · 8. torch's fused kernels have such an exp (``Vectorized::exp_u20``)."""


def coarser(arithmetic: str, than: str) -> bool:
    """Return whether an arithmetic ("" for none) rounds more than another one, or than a dtype."""
    return bool(arithmetic) and UNIT[arithmetic] > UNIT[than]


def assumed(dtype: Dtype) -> Iterator[Arithmetic]:
    """Yield what the judge assumes of outputs in a dtype that are off by more than it allows, exact ones
    first.

    Only where an arithmetic rounds a thousand times as much: rounding then shows in nearly every element.
    """
    return (one for one in ASSUMED if UNIT[one] > 1000 * UNIT[dtype])
