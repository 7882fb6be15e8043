"""Norms and rotary positions of queries and keys in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    Change = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


EPS = 1e-6
"""Added to the mean of squares, as Qwen3 does."""
BASE = 10000.0
"""Of the angles."""


def norm_and_turn(setup: Setup) -> Change:
    """Return a function of q, k and the weights of their norms that gives both as attention takes them.

    Rows are divided by their root mean square, and pairs of features are turned by their positions. This
    computes in float32, in float64 in its cases, and rounds once.
    """
    import torch

    case = setup.case
    wide = torch.float64 if case.dtype == "float64" else torch.float32
    half = case.D // 2
    rates = BASE ** (-torch.arange(half, dtype=torch.float64, device=case.device) / half)

    def angles_of(count: int, first: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(first, first + count, dtype=torch.float64, device=case.device)
        angles = places[:, None] * rates
        return angles.cos().to(wide), angles.sin().to(wide)

    tables = angles_of(case.Lq, case.query_offset), angles_of(case.Lk, 0)

    def one(x: Tensor, weights: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = table
        rows = x.to(wide)
        rows = rows * (rows.square().mean(-1, keepdim=True) + EPS).rsqrt() * weights.to(wide)
        first, second = rows[..., :half], rows[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)

    return lambda q, k, norm_q, norm_k: (one(q, norm_q, tables[0]), one(k, norm_k, tables[1]))
