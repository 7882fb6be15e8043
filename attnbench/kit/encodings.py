"""What encoded keys and values mean, in torch: codes and scales to tensors of the dtype of the case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.types.encoding import encoding_name, grain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.case import Case

    Dequantise = Callable[..., tuple[Tensor, Tensor]]

SCALED = ("int8",)
"""The built-in encodings whose scales are tensors of their own."""
ENCODINGS = SCALED


def dequantiser(case: Case) -> Dequantise:
    """Return a function of a case's encoded tensors, without q, that gives k and v in its dtype.

    Products of codes and scales are in float32, and rounded once.
    """
    dtype = case_dtype(case)
    wide = softmax_dtype(dtype)
    numbers, spread = _READ[encoding_name(case)], _SPREAD[grain_of(case)]

    def dequantise(k: Tensor, v: Tensor, k_scale: Tensor, v_scale: Tensor) -> tuple[Tensor, Tensor]:
        pairs = (k, k_scale), (v, v_scale)
        keys, values = ((numbers(x).to(wide) * spread(scale)).to(dtype) for x, scale in pairs)
        return keys, values

    return dequantise


_READ: dict[str, Callable[[Tensor], Tensor]] = {"int8": lambda codes: codes}
_SPREAD: dict[str, Callable[[Tensor], Tensor]] = {"head": lambda scale: scale[:, :, None, None]}
"""Scales in a shape that multiplies (B, Hkv, L, D), by grain."""
