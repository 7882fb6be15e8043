"""Sums of weighted tanh over a group of features as one quotient of two matrix products.

tanh(a + b) is (e^a e^b - e^-a e^-b) / (e^a e^b + e^-a e^-b). On the common denominator of a group of features
the sum of v_d tanh(a_d + b_d) is N / D, D the product of 2 cosh(a_d + b_d) over the group: multiplied out, a sum
over all choices s of signs of e^(s·a) e^(s·b), and N the same sum with each choice times s·v. Both are
products of matrices with 2^FEATURES columns, and there is one division for a group.

All is divided by e^(Σ|a|) by query and e^(Σ|b|) by key, which cancels in N / D: a factor is then a product of
ones and of t = e^(-2|a|), nothing overflows, and exp is needed of L·D elements, not of L·L·D.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FEATURES = 3
"""Of a group. With fewer there are more divisions, with more the products take longer."""

TERMS = 2**FEATURES


def groups(D: int) -> int:
    """How many groups D features make; the last is filled up with features of weight 0."""
    return -(-D // FEATURES)


def factors(x: Tensor) -> Tensor:
    """(..., L, D) to (..., groups, TERMS, L): e^(s·x - Σ|x|) for each choice s of signs."""
    import torch

    grouped = _grouped(x).mT.unflatten(-2, (-1, FEATURES))
    positive = grouped >= 0
    # Not of abs(): its gradient at 0 is 0.
    small = (torch.where(positive, grouped, -grouped) * -2).exp()
    plus, minus = torch.where(positive, 1.0, small), torch.where(positive, small, 1.0)
    both = torch.stack((plus, minus), dim=-2)
    made = both[..., 0, :, :]
    for d in range(1, FEATURES):
        made = (made[..., :, None, :] * both[..., d, None, :, :]).flatten(-3, -2)
    return made


def weighted(made: Tensor, v: Tensor) -> Tensor:
    """Factors of queries (B, H, groups, TERMS, L) with weights v (H, D): numerator's and denominator's.

    (B, H, groups, TERMS, 2, L).
    """
    import torch

    sums = (_grouped(v).unflatten(-1, (-1, FEATURES)) @ _signs(v)).unsqueeze(-1)
    return torch.stack((made * sums, made), dim=-2)


def reach(dtype: torch.dtype) -> float:
    """How large Σ|a| of a group may be, so that no D is smaller than what is rounded exactly.

    D is at least e^(-2 min(Σ|a|, Σ|b|)): it suffices that one of the two sums is within.
    """
    import torch

    numbers = torch.finfo(dtype)
    return -0.5 * math.log(numbers.tiny / numbers.eps)


def beyond(x: Tensor) -> Tensor:
    """Which rows of (..., L, D) have a group that is out of reach: bool (..., L)."""
    sums = _grouped(x.abs()).unflatten(-1, (-1, FEATURES)).sum(-1)
    # What is no number is within no reach either.
    return ~(sums.amax(-1) <= reach(x.dtype))


def _grouped(x: Tensor) -> Tensor:
    from torch.nn.functional import pad

    D = x.shape[-1]
    return pad(x, (0, groups(D) * FEATURES - D))


def _signs(like: Tensor) -> Tensor:
    """(FEATURES, TERMS) of 1 and -1, the last feature's changing fastest, as in :func:`factors`."""
    import torch

    one = torch.tensor((1.0, -1.0), dtype=like.dtype, device=like.device)
    return torch.cartesian_prod(*[one] * FEATURES).mT
