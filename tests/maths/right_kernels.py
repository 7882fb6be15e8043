"""Right attention written in other ways than the plain reference: other orders of summation, other roundings.

For rules in dot-product form or not, with masks, biases and sinks, through a rule's torch Scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from attnbench.masks import added_rows, keep_rows
from attnbench.types.backend import Setup

Kernel = Callable[[Setup, Tensor, Tensor, Tensor], Tensor]


def kernels() -> Iterator[Kernel]:
    yield from (unfused, online, in_float32, one_query_at_a_time)


def added_to_scores(setup: Setup) -> Tensor:
    """Mask and bias together, float64 (B or 1, H or 1, Lq, Lk)."""
    case = setup.case
    rows = np.arange(case.Lq)
    keep, added = keep_rows(case, rows), added_rows(case, rows)
    total = torch.zeros(1, 1, case.Lq, case.Lk, dtype=torch.float64)
    if added is not None:
        total = total + torch.from_numpy(added)
    if keep is not None:
        total = total.masked_fill(~torch.from_numpy(keep), -torch.inf)
    if setup.scoring.bias is not None:
        total = total + setup.scoring.bias(slice(0, case.Lq), slice(0, case.Lk)).double()
    return total


def scores_of(setup: Setup, q: Tensor, k: Tensor, cols: slice, scale_queries: bool) -> Tensor:
    dot = setup.scoring.dot
    if dot is None:
        return setup.scoring.scores(q, k, cols)
    q = q if dot.map_q is None else dot.map_q(q)
    k = k if dot.map_k is None else dot.map_k(k)
    scores = (q * dot.scale) @ k.mT if scale_queries else (k @ q.mT).mT * dot.scale
    return scores if dot.cap is None else dot.cap * (scores / dot.cap).tanh()


def sink_column(setup: Setup, like: Tensor) -> Tensor:
    """One more column of scores: the sink's, or nothing at all."""
    column = like.new_full((*like.shape[:-1], 1), -torch.inf)
    sink = setup.scoring.sink
    return column if sink is None else column.zero_() + sink.to(like)[:, None, None]


def with_mask_and_sink(setup: Setup, scores: Tensor) -> Tensor:
    """Scores in float32 or wider, mask and bias added, the sink's column last."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.cat([wide + added_to_scores(setup).to(wide), sink_column(setup, wide)], -1)


def repeated(setup: Setup, x: Tensor) -> Tensor:
    return x.repeat_interleave(setup.case.group, dim=1)


def unfused(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries scaled first; maximum, exp and sum by hand."""
    whole = slice(0, setup.case.Lk)
    scores = with_mask_and_sink(setup, scores_of(setup, q, repeated(setup, k), whole, scale_queries=True))
    top = scores.amax(-1, keepdim=True)
    powers = (scores - top.masked_fill(top.isneginf(), 0)).exp()
    total = powers.sum(-1, keepdim=True)
    weights = powers / total.masked_fill(total == 0, 1)
    return weights[..., :-1].to(q.dtype) @ repeated(setup, v)


def online(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Keys in blocks of three with a running maximum and sum, as kernels of O(L) memory do."""
    case = setup.case
    k, v = repeated(setup, k), repeated(setup, v)
    wide = torch.promote_types(q.dtype, torch.float32)
    added = added_to_scores(setup).to(wide)
    top = sink_column(setup, q).to(wide)
    total = torch.where(top.isneginf(), 0.0, 1.0).to(wide)
    out = torch.zeros(*q.shape[:-1], case.Dv, dtype=wide)
    for start in range(0, case.Lk, 3):
        cols = slice(start, min(start + 3, case.Lk))
        keys = k if setup.rule.pairs_keys else k[:, :, cols]
        scores = scores_of(setup, q, keys, cols, scale_queries=False).to(wide) + added[..., cols]
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        base = new.masked_fill(new.isneginf(), 0)
        powers, shrink = (scores - base).exp(), (top - base).exp()
        out = out * shrink + powers.to(q.dtype).to(wide) @ v[:, :, cols].to(wide)
        total = total * shrink + powers.sum(-1, keepdim=True)
        top = new
    return (out / total.masked_fill(total == 0, 1)).to(q.dtype)


def in_float32(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Everything behind the scores in float32 or wider, rounded once at the end."""
    whole = slice(0, setup.case.Lk)
    scores = with_mask_and_sink(setup, scores_of(setup, q, repeated(setup, k), whole, scale_queries=True))
    weights = scores.softmax(-1).nan_to_num(0)[..., :-1]
    return (weights @ repeated(setup, v).to(weights)).to(q.dtype)


def one_query_at_a_time(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A row of scores at a time, by products and sums instead of a matmul of all."""
    case = setup.case
    k, v = repeated(setup, k), repeated(setup, v)
    wide = torch.promote_types(q.dtype, torch.float32)
    added = added_to_scores(setup).to(wide)
    rows = []
    for i in range(case.Lq):
        keys = k[:, :, i : i + 1] if setup.rule.pairs_keys else k
        scores = scores_of(setup, q[:, :, i : i + 1], keys, slice(0, case.Lk), scale_queries=False).to(wide)
        scores = torch.cat([scores + added[:, :, i : i + 1], sink_column(setup, scores)], -1)
        weights = scores.softmax(-1).nan_to_num(0)[..., :-1].to(q.dtype)
        rows.append((weights.mT * v).sum(2, keepdim=True))
    return torch.cat(rows, 2)
