"""Sums of weighted tanh over a group of features as one quotient of two matrix products.

tanh(a + b) is (e^a e^b - e^-a e^-b) / (e^a e^b + e^-a e^-b). On the common denominator of a group of features
the sum of v_d tanh(a_d + b_d) is N / D, D the product of 2 cosh(a_d + b_d) over the group: multiplied out, a sum
over all choices s of signs of e^(s·a) e^(s·b), and N the same sum with each choice times s·v. Both are
products of matrices with 2^FEATURES columns, and there is one division for a group.

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


def factors(x: Tensor) -> Tensor:
    """(heads, L, D) to (heads, groups, TERMS, L): e^(s·x - Σ|x|) for each choice s of signs."""
    import torch

    grouped = _grouped(x).mT.unflatten(-2, (-1, FEATURES))
    # Of an element that is 0 one of the two has the gradient and the other none: in N / D they would count twice.
    plus, minus = grouped.clamp(max=0).mul(2).exp(), grouped.relu().mul(-2).exp()
    both = torch.stack((plus, minus), dim=-2)
    made = both[..., 0, :, :]
    for d in range(1, FEATURES):
        made = (made[..., :, None, :] * both[..., d, None, :, :]).flatten(-3, -2)
    return made


def with_weights(made: Tensor, v: Tensor) -> Tensor:
    """Factors of queries for the weights v (heads, D): numerators' and denominators'.

    (heads, groups, TERMS, L) to (heads, groups, TERMS, 2, L).
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


def beyond(x: Tensor) -> Tensor | None:
    """Which rows of (heads, L, D) have a group that is out of reach: bool (heads, L); None where none has."""
    furthest = reach(x.dtype)
    size = x.abs()
    if float(size.amax()) * FEATURES <= furthest:
        return None
    sums = _grouped(size).unflatten(-1, (-1, FEATURES)).sum(-1)
    # What is no number is within no reach either.
    far = ~(sums.amax(-1) <= furthest)
    return far if bool(far.any()) else None


def _grouped(x: Tensor) -> Tensor:
    """The last axis filled up with zeros to whole groups."""
    from torch.nn.functional import pad

    return pad(x, (0, -x.shape[-1] % FEATURES))


def _signs(like: Tensor) -> Tensor:
    """(FEATURES, TERMS) of 1 and -1, the last feature's changing fastest, as in :func:`factors`."""
    import torch

    one = torch.tensor((1.0, -1.0), dtype=like.dtype, device=like.device)
    return torch.cartesian_prod(*[one] * FEATURES).mT
