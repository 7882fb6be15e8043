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


def coarser(arithmetic: str, than: str) -> bool:
    """Return whether an arithmetic ("" for none) rounds more than another one, or than a dtype."""
    return bool(arithmetic) and UNIT[arithmetic] > UNIT[than]


def assumed(dtype: Dtype) -> Iterator[Arithmetic]:
    """Yield what the judge assumes of outputs in a dtype that are off by more than it allows, exact ones
    first.

    Only where an arithmetic rounds a thousand times as much: rounding then shows in nearly every element.
    """
    return (one for one in ASSUMED if UNIT[one] > 1000 * UNIT[dtype])
