"""Tiles of additive scores, forward and backward, from the factors of some queries and keys.

Backward goes feature by feature. The derivative of v tanh(a + b) is v / cosh(a + b)². With p and m as in
:func:`signed` it is 4 v e^(-2|a|) e^(-2|b|) / (p_a p_b + m_a m_b)²: summed over pairs, two products of a
matrix and a vector. Going back through the quotients of groups takes fewer steps, but each gradient then has
parts of the group's other features, which cancel up to rounding: twice the error, more than the check allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from attnbench_additive.quotients import signed

if TYPE_CHECKING:
    from torch import Tensor

    Views = Sequence[Tensor]

ENOUGH = 1 << 20
"""Multiplications from which oneDNN is faster than torch.bmm."""

LARGE = 512, 512
"""Rows and columns of a tile: large enough that the fixed cost of a call is small."""

SMALL = 128, 256
"""A tile where a mask keeps few pairs; and the pairs of a tile of several heads or few rows, which torch.bmm
then finds in a core's second cache."""

SUMMED = 8
"""Quotients that are summed before they are added to the others."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """Compute left (heads, n, K) @ right (heads, m, K).mT: (heads, n, m).

    torch hands float32 to MKL, which uses half of the vector width of an AMD processor with AVX-512; oneDNN
    uses all of it. A call of oneDNN costs more than one of torch.bmm, and takes one head.
    """
    import torch

    linear = _linear()
    few = left.shape[1] * right.shape[1] * right.shape[2] < ENOUGH
    if linear is None or few or len(left) > 1 or left.dtype != torch.float32:
        return torch.bmm(left, right.mT)
    x, weight = left[0], right[0]
    if not weight.mT.is_contiguous():
        # oneDNN computes rows with gaps between them by its reference code, a thousand times slower.
        weight = weight.contiguous()
    made: Tensor = linear(x, weight, None, "none", [], "")
    return made[None]


@cache
def _linear() -> Any:
    """oneDNN's product, which torch's compiler calls for float32; None in a torch built without it."""
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's own
        return None
    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if found is None else found.default


def tile_shapes(Lq: int, Lk: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of a large tile and of a small one; with few rows a tile is longer."""
    for rows, cols in (LARGE, SMALL):
        height = min(Lq, rows)
        yield height, min(Lk, max(cols, math.prod(SMALL) // height))


def heads_together(H: int, shape: tuple[int, int]) -> tuple[slice, ...]:
    """Group the heads so that a tile of few pairs has several heads."""
    at_once = max(1, math.prod(SMALL) // math.prod(shape))
    return tuple(slice(h, min(h + at_once, H)) for h in range(0, H, at_once))


class Buffers:
    """Memory that all tiles of a call use in turn, since fresh memory is cold."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.held: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of this shape, uninitialized."""
        count = math.prod(shape)
        held = self.held.get(name)
        if held is None or len(held) < count:
            held = self.held[name] = self.like.new_empty(count)
        return held[:count].view(shape)


def of_queries(made: Tensor, sums: Tensor, rows: slice) -> Views:
    """The numerators' factors above the denominators', by group: (heads, 2·rows, TERMS).

    made: factors, (heads, groups, TERMS, L).
    """
    import torch

    below = made[..., rows].permute(1, 0, 3, 2).contiguous()
    groups, heads, count, terms = below.shape
    both = below.new_empty(groups, heads, 2, count, terms)
    torch.mul(below, sums, out=both[:, :, 0])
    both[:, :, 1] = below
    return both.flatten(2, 3).unbind()


def of_keys(made: Tensor, cols: slice) -> Views:
    """The factors of some keys by group, (heads, cols, TERMS), of ``made`` (heads, groups, TERMS, L)."""
    return made[..., cols].transpose(0, 1).contiguous().mT.unbind()


def write_scores(into: Tensor, of_rows: Views, of_cols: Views, buffers: Buffers) -> None:
    """Write the sum of all quotients, (heads, rows, cols), from :func:`of_queries` and :func:`of_keys`."""
    import torch

    some = buffers.take("some", *into.shape)
    for g, (one, other) in enumerate(zip(of_rows, of_cols, strict=True)):
        quotient = product(one, other).chunk(2, dim=1)
        # In two levels, since every addition to a long sum rounds it.
        at = into if g < SUMMED else some
        if g % SUMMED:
            at.addcdiv_(*quotient)
        else:
            torch.div(*quotient, out=at)
        # The next quotient then gets this memory, which is warm.
        del quotient
        if g >= SUMMED and (g % SUMMED == SUMMED - 1 or g == len(of_rows) - 1):
            into.add_(some)


@dataclass(frozen=True)
class Side:
    """Queries or keys by feature, (D, heads, L): p, m, their product, and sums over pairs."""

    plus: Tensor
    minus: Tensor
    both: Tensor
    sums: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Side:
        """Make a side of a or b, (heads, L, D)."""
        import torch

        plus, minus = signed(x.permute(2, 0, 1).contiguous())
        return cls(plus, minus, plus * minus, torch.zeros_like(plus))

    def gradient(self, v: Tensor) -> Tensor:
        """The gradient of a or b, (heads, L, D), for weights v (heads, D)."""
        return (self.sums * self.both).permute(1, 2, 0) * (4 * v)[:, None]


def tile_back(
    part: Tensor, queries: Side, keys: Side, rows: slice, cols: slice, of_v: Tensor, buffers: Buffers
) -> None:
    """Add the share of ``part``, the gradient of a tile's scores (heads, rows, cols), to both sides and v.

    of_v: (D, heads), or empty where the gradient of v isn't needed.
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
        # 0 for pairs out of reach, whose part is 0.
        cosh.addcmul_(m_a, m_b).clamp_min_(tiny).reciprocal_()
        torch.mul(part, cosh, out=times)
        if len(of_v):
            of_v[d] += ((times @ p_b.mT) * p_a - (times @ m_b.mT) * m_a).sum((1, 2))
        cosh.mul_(times)
        of_rows[d].baddbmm_(cosh, by_cols[d])
        of_cols[d].baddbmm_(by_rows[d], cosh)
