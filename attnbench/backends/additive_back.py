"""The way back through additive scores, feature by feature.

Of v tanh(a + b) the derivative is v / cosh(a + b)², and with p and m as in ``signed`` it is
4 v e^(-2|a|) e^(-2|b|) / (p_a p_b + m_a m_b)²: summed over pairs, two products of a matrix and a vector. Back
through the quotients of groups there are fewer steps, but each gradient then has parts of the group's
other features, which cancel but for their rounding: twice the error, more than the check allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.backends.additive_factors import signed

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.backends.additive_tiles import Buffers


@dataclass(frozen=True)
class Side:
    """Of queries or of keys, by feature, (D, heads, L): p, m, their product, and sums over pairs."""

    plus: Tensor
    minus: Tensor
    both: Tensor
    sums: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Side:
        """Of a or b, (heads, L, D)."""
        import torch

        plus, minus = signed(x.permute(2, 0, 1).contiguous())
        return cls(plus, minus, plus * minus, torch.zeros_like(plus))

    def gradient(self, v: Tensor) -> Tensor:
        """Of a or b, (heads, L, D), for weights v (heads, D)."""
        return (self.sums * self.both).permute(1, 2, 0) * (4 * v)[:, None]


def tile_back(
    part: Tensor, queries: Side, keys: Side, rows: slice, cols: slice, of_v: Tensor, buffers: Buffers
) -> None:
    """Add what the gradient ``part`` (heads, rows, cols) of a tile's scores gives to both sides and to v's.

    of_v: (D, heads), or of no elements where none is asked for.
    """
    import torch

    cosh, times = buffers.take("cosh", *part.shape), buffers.take("times", *part.shape)
    tiny = torch.finfo(part.dtype).tiny
    every = slice(None)
    at_rows, at_cols = (every, every, rows, None), (every, every, None, cols)
    of_rows, of_cols = queries.sums[at_rows].unbind(), keys.sums[at_cols].unbind()
    by_rows = queries.both[:, :, None, rows].unbind()
    by_cols = keys.both[:, :, cols, None].unbind()
    plus = zip(queries.plus[at_rows].unbind(), keys.plus[at_cols].unbind(), strict=True)
    minus = zip(queries.minus[at_rows].unbind(), keys.minus[at_cols].unbind(), strict=True)
    for d, ((p_a, p_b), (m_a, m_b)) in enumerate(zip(plus, minus, strict=True)):
        torch.mul(p_a, p_b, out=cosh)
        # 0 of pairs that are out of reach, whose part is 0.
        cosh.addcmul_(m_a, m_b).clamp_min_(tiny).reciprocal_()
        torch.mul(part, cosh, out=times)
        if len(of_v):
            of_v[d] += ((times @ p_b.mT) * p_a - (times @ m_b.mT) * m_a).sum((1, 2))
        cosh.mul_(times)
        of_rows[d].baddbmm_(cosh, by_cols[d])
        of_cols[d].baddbmm_(by_rows[d], cosh)
