"""Sums of weighted tanh over a group of features as one quotient of two matrix products.

tanh(a + b) is (e^a e^b - e^-a e^-b) / (e^a e^b + e^-a e^-b). On the common denominator of a group of
features the sum of v_d tanh(a_d + b_d) is N / D, D the product of 2 cosh(a_d + b_d) over the group:
multiplied out, a sum over all choices s of signs of e^(s·a) e^(s·b), and N the same sum with each choice
times s·v. Both are products of matrices with 2^FEATURES columns, and there is one division for a group.

All is divided by e^(Σ|a|) by query and e^(Σ|b|) by key, which cancels in N / D: a factor is then a product of
numbers e^(-2|a|) or 1, nothing overflows, and exp is needed of L·D elements, not of L·L·D.
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


def signed(x: Tensor) -> tuple[Tensor, Tensor]:
    """e^(x - |x|) and e^(-x - |x|): one of the two is 1."""
    return x.clamp(max=0).mul_(2).exp_(), x.clamp(min=0).mul_(-2).exp_()


def factors(x: Tensor) -> Tensor:
    """(heads, L, D) to (heads, groups, TERMS, L): e^(s·x - Σ|x|) for each choice s of signs."""
    import torch

    grouped = _grouped(x).movedim(1, -1).contiguous()
    both = torch.stack(signed(grouped), dim=-2)
    made = both[..., 0, :, :]
    for d in range(1, FEATURES):
        made = (made[..., :, None, :] * both[..., d, None, :, :]).flatten(-3, -2)
    return made


def weight_sums(v: Tensor) -> Tensor:
    """s·v for each choice s of signs, v (heads, D): (groups, heads, 1, TERMS)."""
    return (_grouped(v) @ _signs(v)).transpose(0, 1).unsqueeze(2)


def reach(dtype: torch.dtype) -> float:
    """How large Σ|a| of a group may be, so that no D is smaller than what is rounded exactly.

    D is at least e^(-2 min(Σ|a|, Σ|b|)): it suffices that one of the two sums is within.
    """
    import torch

    numbers = torch.finfo(dtype)
    return -0.5 * math.log(numbers.tiny / numbers.eps)


def beyond(sums: Tensor, furthest: float) -> Tensor | None:
    """Which rows of (heads, L, ...) have a sum that is larger: bool (heads, L); None where none has."""
    if float(sums.amax()) <= furthest:
        return None
    # What is no number is within no reach either.
    return ~(sums.amax(-1) <= furthest)


def group_sums(x: Tensor) -> Tensor:
    """(heads, L, D) to (heads, L, groups): Σ|x|."""
    return _grouped(x.abs()).sum(-1)


def _grouped(x: Tensor) -> Tensor:
    """(..., D) to (..., groups, FEATURES), filled up with zeros."""
    from torch.nn.functional import pad

    filled = pad(x, (0, -x.shape[-1] % FEATURES))
    return filled.view(*x.shape[:-1], -1, FEATURES)


def _signs(like: Tensor) -> Tensor:
    """(FEATURES, TERMS) of 1 and -1, the last feature's changing fastest, as in :func:`factors`."""
    import torch

    one = torch.tensor((1.0, -1.0), dtype=like.dtype, device=like.device)
    return torch.cartesian_prod(*[one] * FEATURES).mT
