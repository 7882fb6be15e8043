"""Additive attention of some heads, strip by strip of tiles, and a function of torch's autograd around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from attnbench.backends.additive_factors import factors, with_weights
from attnbench.backends.additive_pairs import far_pairs
from attnbench.backends.additive_tiles import Buffers, RowsBack, factors_of_rows, scores_of_tile
from attnbench.backends.chunks import Chunk

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
        """The last axis of (heads, groups, ...) in blocks, by group: under the first column of each."""
        blocks = {cols.start: cols for chunk in self.chunks for cols, _ in chunk.blocks}
        return {start: right[..., cols].unbind(1) for start, cols in blocks.items()}


def attend(walk: Walk, a: Tensor, b: Tensor, v: Tensor, values: Tensor) -> Tensor:
    """softmax(Σ_d v_d tanh(a_d + b_d) + mask) @ values, with gradients.

    a (B, H, Lq, D), b (B, H, Lk, D), v (H, D), values (B, H, Lk, Dv), all in the dtype of the softmax.
    """
    out: Tensor = _function().apply(walk, a, b, v, values)
    return out


def _forward(walk: Walk, inputs: Sequence[Tensor], out: Tensor, sums: Tensor, n: int, buffers: Buffers) -> None:
    """Some heads of batch element n: the output, (heads, Lq, Dv), and the logarithm of the sum of e^score.

    That one, (heads, Lq, 1), is inf where no key is kept.
    """
    import torch

    a, b, v, values = inputs
    left, of_cols = with_weights(factors(a), v), walk.by_block(factors(b))
    far = far_pairs(a, b, v)
    lowest = torch.finfo(values.dtype).min
    for chunk in walk.chunks:
        rows, kept = chunk.rows, _kept(chunk)
        strip = buffers.take("strip", len(a), rows.stop - rows.start, kept.stop - kept.start)
        if sum(cols.stop - cols.start for cols, _ in chunk.blocks) < strip.shape[-1]:
            strip.fill_(-torch.inf)
        of_rows = factors_of_rows(left, rows).mT.unbind()
        for cols, added in chunk.blocks:
            block = scores_of_tile(of_rows, of_cols[cols.start], buffers)
            if far is not None:
                far.score(block, rows, cols)
            at = strip[..., cols.start - kept.start : cols.stop - kept.start]
            if added is None:
                at.copy_(block)
            else:
                torch.add(block, _of_batch(added, n), out=at)
        if not chunk.blocks:
            out[:, rows], sums[:, rows] = 0, torch.inf
            continue
        largest = strip.amax(-1, keepdim=True).clamp_min_(lowest)
        total = strip.sub_(largest).exp_().sum(-1, keepdim=True)
        # 1 or more in every row with a key; 0 elsewhere, as is what it divides.
        torch.div(strip @ values[:, kept], total.clamp_min(0.5), out=out[:, rows])
        sums[:, rows] = total.log().add_(largest).masked_fill_(total == 0, torch.inf)


def _backward(
    walk: Walk, inputs: Sequence[Tensor], kept: Sequence[Tensor], n: int, buffers: Buffers
) -> tuple[Tensor, ...]:
    """The gradients of a, b, v and the values, of some heads of batch element n.

    kept: the output, the logarithms of sums, and the gradient of the output.
    """
    import torch

    a, b, v, values = (x.detach() for x in inputs)
    out, sums, upstream = kept
    with torch.enable_grad():
        leaves = tuple(x.requires_grad_() for x in (a, b, v))
        made = with_weights(factors(leaves[0]), leaves[2]), factors(leaves[1])
    a, b, v = (x.detach() for x in leaves)
    left, right = (x.detach() for x in made)
    of_left, of_right, of_values = (torch.zeros_like(x) for x in (left, right, values))
    of_cols, into = walk.by_block(right), walk.by_block(of_right)
    far, of_far = far_pairs(a, b, v), tuple(torch.zeros_like(x) for x in leaves)
    delta = (upstream * out).sum(-1, keepdim=True)
    for chunk in walk.chunks:
        rows = chunk.rows
        back = RowsBack(factors_of_rows(left, rows))
        given = upstream[:, rows]
        for cols, added in chunk.blocks:
            of_keys = of_cols[cols.start]
            block = scores_of_tile(back.of_rows, of_keys, buffers)
            if far is not None:
                far.score(block, rows, cols)
            if added is not None:
                block.add_(_of_batch(added, n))
            weights = block.sub_(sums[:, rows]).exp_()
            of_values[:, cols].baddbmm_(weights.mT, given)
            part = (given @ values[:, cols].mT).sub_(delta[:, rows]).mul_(weights)
            if far is not None:
                far.gradients(part, of_far, rows, cols)
            back.add(part, of_keys, into[cols.start], buffers)
        back.write(of_left, rows)
    near = torch.autograd.grad(made, leaves, (of_left, of_right))
    return (*(one.add_(other) for one, other in zip(of_far, near, strict=True)), of_values)


def _kept(chunk: Chunk) -> slice:
    """From the first column of a chunk to its last."""
    if not chunk.blocks:
        return slice(0, 0)
    return slice(chunk.blocks[0][0].start, chunk.blocks[-1][0].stop)


def _of_batch(added: Tensor, n: int) -> Tensor:
    return added[n if len(added) > 1 else 0]


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
            B, H, Lq, _ = a.shape
            out, sums = a.new_empty(B, H, Lq, values.shape[-1]), a.new_empty(B, H, Lq, 1)
            buffers = Buffers(a)
            for n, heads in walk.parts(B):
                inputs = a[n, heads], b[n, heads], v[heads], values[n, heads]
                _forward(walk, inputs, out[n, heads], sums[n, heads], n, buffers)
            ctx.walk = walk
            ctx.save_for_backward(a, b, v, values, out, sums)
            return out

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            a, b, v, values, out, sums = ctx.saved_tensors
            of_a, of_b, of_v, of_values = (torch.zeros_like(x) for x in (a, b, v, values))
            buffers = Buffers(a)
            for n, heads in ctx.walk.parts(len(a)):
                inputs = a[n, heads], b[n, heads], v[heads], values[n, heads]
                kept = out[n, heads], sums[n, heads], upstream[n, heads]
                of_a[n, heads], of_b[n, heads], more_v, of_values[n, heads] = _backward(
                    ctx.walk, inputs, kept, n, buffers
                )
                of_v[heads] += more_v
            return None, of_a, of_b, of_v, of_values

    return Additive
