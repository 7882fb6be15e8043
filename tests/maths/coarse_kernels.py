"""Right attention in a coarser arithmetic: operands of the products are rounded, sums are in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from right_kernels import Kernel, repeated, scores_of, with_mask_and_sink
from torch import Tensor

from attnbench.types.backend import Setup

Rounding = Callable[[Tensor], Tensor]


def to_dtype(dtype: torch.dtype, x: Tensor) -> Tensor:
    return x.to(dtype).to(x.dtype)


def to_bits(bits: int, x: Tensor) -> Tensor:
    """So many bits behind the point, to nearest: adding a large number takes the others away."""
    large = x * (1 + 2.0 ** (23 - bits))
    return large - (large - x)


def cut_to_bits(bits: int, x: Tensor) -> Tensor:
    """The same bits, the others cut off."""
    return (x.contiguous().view(torch.int32) & -(1 << (23 - bits))).view(torch.float32)


def to_steps(most: float, x: Tensor) -> Tensor:
    """Whole steps, of which the largest number of a row has ``most``."""
    step = x.abs().amax(-1, keepdim=True) / most
    return (x / step.masked_fill(step == 0, 1)).round() * step


def to_float8(x: Tensor) -> Tensor:
    """e4m3, after the largest number of a head became 448."""
    factor = 448 / x.abs().amax((-1, -2), keepdim=True).clamp_min(1e-30)
    return to_dtype(torch.float8_e4m3fn, x * factor) / factor


ROUNDINGS: dict[str, Rounding] = {
    "float32": partial(to_dtype, torch.float32),
    "tf32": partial(to_bits, 10),
    "float16": partial(to_dtype, torch.float16),
    "bfloat16": partial(to_dtype, torch.bfloat16),
    "int8": partial(to_steps, 127),
    "float8_e4m3": to_float8,
}
"""By arithmetic."""

OPERANDS = ("qk", "v", "weights", "qk v", "weights v", "qk weights v", "qk scores weights v out")
"""What a kernel may round: the operands of one product or both, and all that it stores."""


def coarse(rounded: Rounding, operands: str, setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def stored(name: str, x: Tensor) -> Tensor:
        return rounded(x) if name in operands.split() else x

    q, k = stored("qk", q), stored("qk", k)
    raw = stored("scores", scores_of(setup, q, repeated(setup, k), slice(0, setup.case.Lk), False))
    weights = with_mask_and_sink(setup, raw).softmax(-1).nan_to_num(0)[..., :-1].to(v.dtype)
    return stored("out", stored("weights", weights) @ repeated(setup, stored("v", v)))


def coarse_kernels(arithmetic: str) -> dict[str, Kernel]:
    """Every choice of operands, by name."""
    return {operands: partial(coarse, ROUNDINGS[arithmetic], operands) for operands in OPERANDS}
