"""Sums of weighted tanh over a group of features, as one quotient of two matrix products.

tanh(a + b) is (e^a e^b - e^-a e^-b) / (e^a e^b + e^-a e^-b). On the common denominator of a group of
features the sum of v_d tanh(a_d + b_d) is N / D, D the product of 2 cosh(a_d + b_d) over the group:
multiplied out, a sum over all choices s of signs of e^(s·a) e^(s·b), and N the same sum with each choice
times s·v. Both are products of matrices with 2^FEATURES columns, and there is one division for a group.

Each query's factors are divided by e^(Σ|a|) and each key's by e^(Σ|b|), which cancels in N / D. A factor is
then a product of numbers e^(-2|a|) or 1, nothing overflows, and exp runs on L·D elements instead of L·L·D.

A pair whose sums Σ|a| and Σ|b| are both large is out of reach of the quotient: D would underflow. tanh itself
computes those pairs (:class:`FarPairs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FEATURES = 3
"""Features of a group. Fewer need more divisions; more make the products slower."""

TERMS = 2**FEATURES

ELEMENTS = 1 << 18
"""Hidden values of far pairs computed at once: a MiB of float32."""


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
    """The largest Σ|a| of a group at which D keeps all its digits.

    D is at least e^(-2 min(Σ|a|, Σ|b|)), so it suffices that one of the two sums is within reach.
    """
    import torch

    numbers = torch.finfo(dtype)
    return -0.5 * math.log(numbers.tiny / numbers.eps)


def beyond(sums: Tensor, furthest: float) -> Tensor | None:
    """The rows of (heads, L, ...) with a sum beyond ``furthest``: bool (heads, L); None without any."""
    if float(sums.amax()) <= furthest:
        return None
    # NaN is not within reach.
    return ~(sums.amax(-1) <= furthest)


def group_sums(x: Tensor) -> Tensor:
    """(heads, L, D) to (heads, L, groups): Σ|x|."""
    return _grouped(x.abs()).sum(-1)


def _grouped(x: Tensor) -> Tensor:
    """Reshape (..., D) to (..., groups, FEATURES), padded with zeros."""
    from torch.nn.functional import pad

    filled = pad(x, (0, -x.shape[-1] % FEATURES))
    return filled.view(*x.shape[:-1], -1, FEATURES)


def _signs(like: Tensor) -> Tensor:
    """All choices of signs, (FEATURES, TERMS), in the order of :func:`factors`: the last changes fastest."""
    import torch

    one = torch.tensor((1.0, -1.0), dtype=like.dtype, device=like.device)
    return torch.cartesian_prod(*[one] * FEATURES).mT


@dataclass(frozen=True)
class FarPairs:
    """Pairs of a query and a key that are both out of reach, computed by tanh itself.

    a (heads, Lq, D), b (heads, Lk, D), v (heads, D); far_queries and far_keys are bool, (heads, L).
    """

    a: Tensor
    b: Tensor
    v: Tensor
    far_queries: Tensor
    far_keys: Tensor

    def score(self, scores: Tensor, rows: slice, cols: slice) -> None:
        """Overwrite the scores of far pairs in a tile, (heads, rows, cols)."""
        for h, i, j in self._pairs(rows, cols):
            hidden = (self.a[h, i, None] + self.b[h, j]).tanh_()
            scores[h][(i - rows.start)[:, None], j - cols.start] = hidden @ self.v[h]

    def gradients(self, upstream: Tensor, into: tuple[Tensor, ...], rows: slice, cols: slice) -> None:
        """Add the far pairs' share to the gradients of a, b and v, and set their ``upstream`` to 0."""
        of_a, of_b, of_v = into
        for h, i, j in self._pairs(rows, cols):
            at = (i - rows.start)[:, None], j - cols.start
            given = upstream[h][at]
            upstream[h][at] = 0
            hidden = (self.a[h, i, None] + self.b[h, j]).tanh_()
            of_v[h] += given.flatten() @ hidden.flatten(0, 1)
            inner = hidden.square_().neg_().add_(1).mul_(self.v[h]).mul_(given[..., None])
            of_a[h].index_add_(0, i, inner.sum(1))
            of_b[h].index_add_(0, j, inner.sum(0))

    def _pairs(self, rows: slice, cols: slice) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield for each head in a tile some far queries at a time, with all far keys."""
        for h in range(len(self.a)):
            i = self.far_queries[h, rows].nonzero()[:, 0] + rows.start
            j = self.far_keys[h, cols].nonzero()[:, 0] + cols.start
            if not len(i) or not len(j):
                continue
            for some in i.split(max(1, ELEMENTS // (len(j) * self.a.shape[-1]))):
                yield h, some, j


def far_of_groups(a: Tensor, b: Tensor, v: Tensor) -> FarPairs | None:
    """The pairs out of reach of the quotient of a group; None where there are none."""
    return _far(a, b, v, group_sums, reach(a.dtype))


def far_of_features(a: Tensor, b: Tensor, v: Tensor) -> FarPairs | None:
    """The pairs out of reach of 1 / (2 cosh)² of a feature, which has half the reach."""
    return _far(a, b, v, lambda x: x.abs(), reach(a.dtype) / 2)


def _far(
    a: Tensor, b: Tensor, v: Tensor, sums: Callable[[Tensor], Tensor], furthest: float
) -> FarPairs | None:
    far_keys = beyond(sums(b), furthest)
    far_queries = None if far_keys is None else beyond(sums(a), furthest)
    if far_keys is None or far_queries is None:
        return None
    return FarPairs(a, b, v, far_queries, far_keys)
