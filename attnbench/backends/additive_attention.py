"""Additive attention of some heads, strip by strip of tiles, and a function of torch's autograd around it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from attnbench.backends.additive_back import Side, tile_back
from attnbench.backends.additive_factors import factors, weight_sums
from attnbench.backends.additive_pairs import far_of_features, far_of_groups
from attnbench.backends.additive_tiles import Buffers, of_keys, of_queries, write_scores
from attnbench.backends.chunks import Chunk

LOG2_E = math.log2(math.e)

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.backends.additive_tiles import Views


@dataclass(frozen=True)
class Walk:
    """The way through a case: heads that are taken together, and the blocks of pairs that the mask keeps."""

    heads: tuple[slice, ...]
    chunks: Sequence[Chunk]

    def parts(self, B: int) -> Iterator[tuple[int, slice]]:
        """Batch elements and heads."""
        return ((b, heads) for b in range(B) for heads in self.heads)

    def by_block(self, right: Tensor) -> dict[int, Views]:
        """Factors of keys in blocks, by group: under the first column of each."""
        blocks = {cols.start: cols for chunk in self.chunks for cols, _ in chunk.blocks}
        return {start: of_keys(right, cols) for start, cols in blocks.items()}


def attend(walk: Walk, a: Tensor, b: Tensor, v: Tensor, values: Tensor) -> Tensor:
    """softmax(Σ_d v_d tanh(a_d + b_d) + mask) @ values, with gradients.

    a (B, H, Lq, D), b (B, H, Lk, D), v (H, D), values (B, H, Lk, Dv), all in the dtype of the softmax.
    """
    out: Tensor = _function().apply(walk, a, b, v, values)
    return out


@dataclass(frozen=True)
class Part:
    """Of some heads of batch element n a (heads, Lq, D), b (heads, Lk, D), v (heads, D), values
    (heads, Lk, Dv)."""

    n: int
    a: Tensor
    b: Tensor
    v: Tensor
    values: Tensor


def _strips(walk: Walk, part: Part, buffers: Buffers) -> Iterator[tuple[Chunk, slice, Tensor, Tensor]]:
    """Query rows, the keys from the first that they see to the last, e^(score - largest) and by row its sum.

    (heads, rows, keys) in a buffer, (heads, rows, 1). The sum is 1 or more where a key is kept. Where none
    is, both are 0 and the sum is given as 1, since it is to be divided by.
    """
    import torch

    left, sums, of_cols = factors(part.a), weight_sums(part.v), walk.by_block(factors(part.b))
    far = far_of_groups(part.a, part.b, part.v)
    lowest = torch.finfo(part.a.dtype).min
    for chunk in walk.chunks:
        if not chunk.blocks:
            continue
        rows, kept = chunk.rows, slice(chunk.blocks[0][0].start, chunk.blocks[-1][0].stop)
        strip = buffers.take("strip", len(part.a), rows.stop - rows.start, kept.stop - kept.start)
        if sum(cols.stop - cols.start for cols, _ in chunk.blocks) < strip.shape[-1]:
            strip.fill_(-torch.inf)
        of_rows = of_queries(left, sums, rows)
        for cols, added in chunk.blocks:
            scores = strip[..., _within(cols, kept)]
            write_scores(scores, of_rows, of_cols[cols.start], buffers)
            if far is not None:
                far.score(scores, rows, cols)
            if added is not None:
                scores.add_(added[part.n if len(added) > 1 else 0])
        # e^x as 2^(x log2(e)): torch's exp2 takes a quarter of the time of its exp, which is MKL's.
        strip.sub_(strip.amax(-1, keepdim=True).clamp_min_(lowest)).mul_(LOG2_E).exp2_()
        yield chunk, kept, strip, strip.sum(-1, keepdim=True).clamp_min_(0.5)


def _forward(walk: Walk, part: Part, out: Tensor, buffers: Buffers) -> None:
    """The output of some heads, (heads, Lq, Dv)."""
    import torch

    for chunk, kept, powers, total in _strips(walk, part, buffers):
        # Not by oneDNN, which adds so many keys one by one: twice the rounding.
        torch.div(powers @ part.values[:, kept], total, out=out[:, chunk.rows])


def _backward(
    walk: Walk, part: Part, upstream: Tensor, of_values: Tensor, wants_v: bool, buffers: Buffers
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a, b and v of some heads; that of the values is added to ``of_values``."""
    import torch

    queries, keys = Side.of(part.a), Side.of(part.b)
    near_v = part.v.new_zeros(part.v.mT.shape if wants_v else (0, 0))
    far = far_of_features(part.a, part.b, part.v)
    of_far = tuple(x.new_zeros(x.shape) for x in (part.a, part.b, part.v))
    for chunk, kept, powers, total in _strips(walk, part, buffers):
        rows = chunk.rows
        weights, given = powers.div_(total), upstream[:, rows]
        of_values[:, kept].baddbmm_(weights.mT, given)
        of_weights = buffers.take("of weights", *weights.shape)
        torch.bmm(given, part.values[:, kept].mT, out=of_weights)
        # Of the same weights, so that the gradients of a row's scores add up to 0 but for their rounding.
        of_weights.sub_((of_weights * weights).sum(-1, keepdim=True)).mul_(weights)
        for cols, _ in chunk.blocks:
            of_scores = of_weights[..., _within(cols, kept)].contiguous()
            if far is not None:
                far.gradients(of_scores, of_far, rows, cols)
            tile_back(of_scores, queries, keys, rows, cols, near_v, buffers)
    of_a, of_b, of_v = of_far
    of_a, of_b = of_a.add_(queries.gradient(part.v)), of_b.add_(keys.gradient(part.v))
    return of_a, of_b, of_v.add_(near_v.mT) if wants_v else of_v


def _within(cols: slice, kept: slice) -> slice:
    return slice(cols.start - kept.start, cols.stop - kept.start)


@cache
def _function() -> Any:
    """The function of torch's autograd: made at the first call, as torch is imported no earlier."""
    import torch
    from torch.autograd import Function
    from torch.autograd.function import once_differentiable

    class Additive(Function):
        """Tiles forward; back, the tiles are computed once more."""

        @staticmethod
        def forward(ctx: Any, walk: Walk, a: Tensor, b: Tensor, v: Tensor, values: Tensor) -> Tensor:
            # 0 where no key is kept.
            out = a.new_zeros(*a.shape[:-1], values.shape[-1])
            buffers = Buffers(a)
            for n, heads in walk.parts(len(a)):
                part = Part(n, a[n, heads], b[n, heads], v[heads], values[n, heads])
                _forward(walk, part, out[n, heads], buffers)
            ctx.walk = walk
            ctx.save_for_backward(a, b, v, values)
            return out

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            a, b, v, values = ctx.saved_tensors
            wants_v = ctx.needs_input_grad[3]
            of_a, of_b, of_v, of_values = (torch.zeros_like(x) for x in (a, b, v, values))
            buffers = Buffers(a)
            for n, heads in ctx.walk.parts(len(a)):
                part = Part(n, a[n, heads], b[n, heads], v[heads], values[n, heads])
                of_a[n, heads], of_b[n, heads], more_v = _backward(
                    ctx.walk, part, upstream[n, heads], of_values[n, heads], wants_v, buffers
                )
                of_v[heads] += more_v
            return None, of_a, of_b, of_v if wants_v else None, of_values

    return Additive
