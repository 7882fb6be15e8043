"""Additive attention tile by tile, forward and back: nothing by pair is kept but a strip of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from attnbench.backends.additive_factors import factors, weighted
from attnbench.backends.additive_pairs import FarPairs, far_pairs
from attnbench.backends.chunks import Chunk

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Factors = tuple[Tensor, Tensor]
    Views = Sequence[Tensor]
    ByColumn = dict[int, Views]

ROWS, COLS = 128, 256
"""Of a tile: numerators and denominators of a group, and the scores, stay in a core's second cache."""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a case: heads that are taken together, and the blocks of pairs that the mask keeps."""

    heads: tuple[slice, ...]
    chunks: Sequence[Chunk]


class Buffers:
    """Memory that all tiles of a call use in turn: what is allocated anew is cold, and may have to be paged in."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.held: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of this shape, with whatever numbers."""
        count = math.prod(shape)
        held = self.held.get(name)
        if held is None or len(held) < count:
            held = self.held[name] = self.like.new_empty(count)
        return held[:count].view(shape)

    def quotients(self, of_rows: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(heads, 2·rows, cols), and its halves: numerators and denominators."""
        both = self.take("quotients", *of_rows.shape[:2], of_keys.shape[-1])
        numerator, denominator = both.chunk(2, dim=1)
        return both, numerator, denominator


def tile_shape(Lq: int, Lk: int) -> tuple[int, int]:
    """Rows and columns of a tile; few rows make longer ones."""
    rows = min(Lq, ROWS)
    return rows, min(Lk, max(COLS, ROWS * COLS // rows))


def heads_together(H: int, shape: tuple[int, int]) -> tuple[slice, ...]:
    """Heads of one batch element by so many that a tile has its size however short it is."""
    at_once = max(1, ROWS * COLS // (shape[0] * shape[1]))
    return tuple(slice(h, min(h + at_once, H)) for h in range(0, H, at_once))


def attend(tiles: Tiles, a: Tensor, b: Tensor, v: Tensor, values: Tensor) -> Tensor:
    """softmax(Σ_d v_d tanh(a_d + b_d) + mask) @ values, with gradients.

    a (B, H, Lq, D), b (B, H, Lk, D), v (H, D), values (B, H, Lk, Dv), all in the dtype of the softmax.
    """
    out: Tensor = _function().apply(tiles, weighted(factors(a), v), factors(b), a, b, v, values)
    return out


def forward(tiles: Tiles, made: Factors, far: FarPairs | None, values: Tensor) -> tuple[Tensor, Tensor]:
    """The output and by query the logarithm of the sum of e^score: inf where no key is kept."""
    import torch

    left, right = made
    B, H, Lk, Dv = values.shape
    Lq = left.shape[-1]
    out, sums = values.new_empty(B, H, Lq, Dv), values.new_empty(B, H, Lq, 1)
    lowest = torch.finfo(values.dtype).min
    buffers = Buffers(values)
    for b, heads, of_cols, chunk in _strips(tiles, right, B):
        rows, kept = chunk.rows, _kept(chunk)
        strip = buffers.take("strip", heads.stop - heads.start, rows.stop - rows.start, kept.stop - kept.start)
        if sum(cols.stop - cols.start for cols, _ in chunk.blocks) < strip.shape[-1]:
            strip.fill_(-torch.inf)
        of_rows = _of_rows(left, b, heads, rows).mT.unbind()
        for cols, added in chunk.blocks:
            block = _scores(of_rows, of_cols[cols.start], buffers)
            if far is not None:
                far.score(block, b, heads, rows, cols)
            at = strip[..., cols.start - kept.start : cols.stop - kept.start]
            if added is None:
                at.copy_(block)
            else:
                torch.add(block, _of_batch(added, b), out=at)
        if not chunk.blocks:
            out[b, heads, rows], sums[b, heads, rows] = 0, torch.inf
            continue
        largest = strip.amax(-1, keepdim=True).clamp_min_(lowest)
        total = strip.sub_(largest).exp_().sum(-1, keepdim=True)
        # 1 or more in every row with a key; 0 elsewhere, as is what it divides.
        torch.div(strip @ values[b, heads, kept], total.clamp_min(0.5), out=out[b, heads, rows])
        sums[b, heads, rows] = total.log().add_(largest).masked_fill_(total == 0, torch.inf)
    return out, sums


def backward(
    tiles: Tiles, made: Factors, far: FarPairs | None, values: Tensor, out: Tensor, sums: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor] | None, Tensor]:
    """Gradients of both factors, of a, b and v by far pairs alone, and of the values."""
    import torch

    left, right = made
    of_left, of_right, of_values = torch.zeros_like(left), torch.zeros_like(right), torch.zeros_like(values)
    of_far = None if far is None else (far.a.new_zeros(far.a.shape), *map(torch.zeros_like, (far.b, far.v)))
    delta = (upstream * out).sum(-1, keepdim=True)
    buffers = Buffers(values)
    for b, heads, of_cols, chunk in _strips(tiles, right, values.shape[0]):
        rows = chunk.rows
        of_rows = _of_rows(left, b, heads, rows)
        # What a key's factors are multiplied by on the way back, in the order of a tile's quotients.
        numerator, denominator = of_rows.chunk(2, dim=-1)
        swapped = torch.cat((-denominator, numerator), dim=-1).unbind()
        gathered = torch.zeros_like(of_rows)
        given, views = upstream[b, heads, rows], of_rows.mT.unbind()
        for cols, added in chunk.blocks:
            of_keys = of_cols[cols.start]
            block = _scores(views, of_keys, buffers)
            if far is not None:
                far.score(block, b, heads, rows, cols)
            if added is not None:
                block.add_(_of_batch(added, b))
            weights = block.sub_(sums[b, heads, rows]).exp_()
            of_values[b, heads, cols].baddbmm_(weights.mT, given)
            part = (given @ values[b, heads, cols].mT).sub_(delta[b, heads, rows]).mul_(weights)
            if far is not None and of_far is not None:
                far.gradients(part, of_far, b, heads, rows, cols)
            into = of_right[b, heads, ..., cols].unbind(1)
            _scores_back(part, (views, of_keys), swapped, (gathered.unbind(), into), buffers)
        quotients, reciprocals = gathered.transpose(0, 1).chunk(2, dim=-1)
        of_left[b, heads, :, :, 0, rows] = reciprocals
        of_left[b, heads, :, :, 1, rows] = -quotients
    return of_left, of_right, of_far, of_values


def _strips(tiles: Tiles, right: Tensor, B: int) -> Iterator[tuple[int, slice, ByColumn, Chunk]]:
    """Batch element, heads, the keys' factors by the first column of a block and group, query rows."""
    blocks = {cols.start: cols for chunk in tiles.chunks for cols, _ in chunk.blocks}
    for b in range(B):
        for heads in tiles.heads:
            of_cols = {start: right[b, heads, ..., cols].unbind(1) for start, cols in blocks.items()}
            for chunk in tiles.chunks:
                yield b, heads, of_cols, chunk


def _kept(chunk: Chunk) -> slice:
    """From the first column of a chunk to its last."""
    if not chunk.blocks:
        return slice(0, 0)
    return slice(chunk.blocks[0][0].start, chunk.blocks[-1][0].stop)


def _of_rows(left: Tensor, b: int, heads: slice, rows: slice) -> Tensor:
    """Some queries' factors by group, (groups, heads, TERMS, 2·rows): the numerators' first."""
    return left[b, heads, ..., rows].transpose(0, 1).flatten(-2)


def _of_batch(added: Tensor, b: int) -> Tensor:
    return added[b if len(added) > 1 else 0]


def _scores(of_rows: Views, of_keys: Views, buffers: Buffers) -> Tensor:
    """(heads, rows, cols), the sum of all quotients."""
    import torch

    quotients, numerator, denominator = buffers.quotients(of_rows[0], of_keys[0])
    scores = buffers.take("scores", *numerator.shape)
    torch.bmm(of_rows[0], of_keys[0], out=quotients)
    torch.div(numerator, denominator, out=scores)
    for one, other in zip(of_rows[1:], of_keys[1:], strict=True):
        torch.bmm(one, other, out=quotients)
        scores.addcdiv_(numerator, denominator)
    return scores


def _scores_back(
    part: Tensor, made: tuple[Views, Views], swapped: Views, into: tuple[Views, Views], buffers: Buffers
) -> None:
    """Add to the factors' gradients ``into`` what the scores' gradients ``part`` give.

    Of N / D with gradient p these are p / D for N and -(N / D) p / D for D; the queries' have the latter
    first, without the sign.
    """
    import torch

    quotients, numerator, denominator = buffers.quotients(made[0][0], made[1][0])
    tiny = torch.finfo(part.dtype).tiny
    for of_rows, of_keys, other, rows_into, keys_into in zip(*made, swapped, *into, strict=True):
        torch.bmm(of_rows, of_keys, out=quotients)
        # 0 / 0 of pairs that are out of reach, whose part is 0.
        denominator.clamp_min_(tiny)
        numerator.div_(denominator)
        torch.div(part, denominator, out=denominator)
        numerator.mul_(denominator)
        rows_into.baddbmm_(of_keys, quotients.mT)
        keys_into.baddbmm_(other, quotients)


@cache
def _function() -> Any:
    """The function of torch's autograd: made at the first call, as torch is imported no earlier."""
    from torch.autograd import Function
    from torch.autograd.function import once_differentiable

    class Additive(Function):
        """Factors to the output; a, b and v are for pairs out of reach."""

        @staticmethod
        def forward(
            ctx: Any, tiles: Tiles, left: Tensor, right: Tensor, a: Tensor, b: Tensor, v: Tensor, values: Tensor
        ) -> Tensor:
            out, sums = forward(tiles, (left, right), far_pairs(a, b, v), values)
            ctx.tiles = tiles
            ctx.save_for_backward(left, right, a, b, v, values, out, sums)
            return out

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            left, right, a, b, v, values, out, sums = ctx.saved_tensors
            far = far_pairs(a, b, v)
            of_left, of_right, of_far, of_values = backward(
                ctx.tiles, (left, right), far, values, out, sums, upstream
            )
            of_a, of_b, of_v = (None, None, None) if of_far is None else of_far
            return None, of_left, of_right, of_a, of_b, of_v, of_values

    return Additive
