"""fused_additive: additive scores as quotients of matrix products, in tiles: O(L) memory, both passes.

The exponential form of tanh takes exp of L·D elements instead of tanh of L·L·D, and groups of features share
a division (``quotients.py``). oneDNN computes large products (``tiles.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation, repeat_heads
from attnbench.kit.masks import Chunk, chunks_of
from attnbench.kit.scores import derived
from attnbench.masks import keep_rows
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_additive.quotients import factors, far_of_features, far_of_groups, weight_sums
from attnbench_additive.tiles import (
    Buffers,
    Side,
    heads_together,
    of_keys,
    of_queries,
    tile_back,
    tile_shapes,
    write_scores,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench_additive.tiles import Views

LOG2_E = math.log2(math.e)

SMALL_COSTS = 1.4
"""The time of a pair in a small tile, in times of a pair in a large one."""


def attention(setup: Setup) -> Call:
    """Make the function of ``attention``; half precision is computed in float32 from the projections on."""
    case = setup.case
    wide = softmax_dtype(case_dtype(case))
    walk = walk_of(setup, wide)

    def made(setup: Setup) -> Call:
        import torch

        own = {name: x.to(wide) for name, x in setup.rule_parameters.items()}
        w_query, w_key, bias = own["w_query"].mT, own["w_key"].mT, own["bias"][:, None]
        weights = own["v"] if "v" in own else torch.ones_like(own["bias"])

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            from_q = q.to(wide) @ w_query
            from_k = repeat_heads(k, case.H).to(wide) @ w_key + bias
            values = repeat_heads(v, case.H).to(wide)
            return attend(walk, from_q, from_k, weights, values).to(q.dtype)

        return call

    return derived(setup, made)


def walk_of(setup: Setup, dtype: torch.dtype) -> Walk:
    """Choose large tiles, or small ones where the mask makes those less work."""
    case = setup.case
    large, small = tile_shapes(case.Lq, case.Lk)
    fewer = pairs_in_blocks(case, small) * SMALL_COSTS < pairs_in_blocks(case, large)
    shape = small if fewer else large
    return Walk(heads_together(case.H, shape), chunks_of(setup, dtype, shape))


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return for_operation(attention(setup), setup)


FUSED_ADDITIVE = Backend(
    name="fused_additive",
    summary="additive scores as quotients of matrix products, in tiles: O(L) memory",
    prepare=prepare,
    operations=("attention", "multihead"),
    rules=("additive", "additive_sum"),
    devices=("cpu",),
    passes=PASSES,
    quadratic_copies=0,
)


def pairs_in_blocks(case: Case, shape: tuple[int, int]) -> int:
    """Count the pairs of one head in the blocks of this shape that the mask doesn't drop whole.

    An explicit mask drops scattered pairs, hardly ever a whole block, so it is left out here.
    """
    height, width = shape
    ranges = replace(case, mask=replace(case.mask, explicit=None))
    lefts = np.arange(0, case.Lk, width)
    widths = np.diff(lefts, append=case.Lk)
    pairs = 0
    for top in range(0, case.Lq, height):
        rows = np.arange(top, min(top + height, case.Lq))
        keep = keep_rows(ranges, rows)
        seen = np.ones(case.Lk, bool) if keep is None else keep.any((0, 1, 2))
        pairs += len(rows) * int(widths[np.logical_or.reduceat(seen, lefts)].sum())
    return pairs


@dataclass(frozen=True)
class Walk:
    """The way through a case: groups of heads, and the blocks of pairs that the mask keeps."""

    heads: tuple[slice, ...]
    chunks: Sequence[Chunk]

    def parts(self, B: int) -> Iterator[tuple[int, slice]]:
        """Yield batch elements and groups of heads."""
        return ((b, heads) for b in range(B) for heads in self.heads)

    def by_block(self, right: Tensor) -> dict[int, Views]:
        """The factors of keys by block, under the first column of the block."""
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
    """Some heads of batch element n: a, b (heads, L, D), v (heads, D), values (heads, Lk, Dv)."""

    n: int
    a: Tensor
    b: Tensor
    v: Tensor
    values: Tensor


def _strips(walk: Walk, part: Part, buffers: Buffers) -> Iterator[tuple[Chunk, slice, Tensor, Tensor]]:
    """Yield some query rows, the range of keys they see, e^(score - largest) and its sum by row.

    Shapes: (heads, rows, keys), in a buffer, and (heads, rows, 1). A sum is 1 or more in a row that keeps a
    key. In other rows both are 0, and the sum is raised to 0.5, since it becomes a divisor.
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
        # e^x as 2^(x log2(e)): torch's exp2 takes a quarter of the time of its exp, which calls MKL.
        strip.sub_(strip.amax(-1, keepdim=True).clamp_min_(lowest)).mul_(LOG2_E).exp2_()
        yield chunk, kept, strip, strip.sum(-1, keepdim=True).clamp_min_(0.5)


def _forward(walk: Walk, part: Part, out: Tensor, buffers: Buffers) -> None:
    """Write the output of some heads, (heads, Lq, Dv)."""
    import torch

    for chunk, kept, powers, total in _strips(walk, part, buffers):
        # Not by oneDNN, which adds the keys one by one: twice the rounding error.
        torch.div(powers @ part.values[:, kept], total, out=out[:, chunk.rows])


def _backward(
    walk: Walk, part: Part, upstream: Tensor, of_values: Tensor, wants_v: bool, buffers: Buffers
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a, b and v of some heads; add that of the values to ``of_values``."""
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
        # From the same weights, so that the gradients of a row's scores add up to 0 up to rounding.
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
    """torch's autograd function, defined at the first call, since only that imports torch."""
    import torch
    from torch.autograd import Function
    from torch.autograd.function import once_differentiable

    class Additive(Function):
        """Forward by tiles; backward computes the tiles once more."""

        @staticmethod
        def forward(ctx: Any, walk: Walk, a: Tensor, b: Tensor, v: Tensor, values: Tensor) -> Tensor:
            # Stays 0 in rows that keep no key.
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
