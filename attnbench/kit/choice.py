"""Choices of keys and of blocks in torch: all are scored, and the places of the best returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.reference import masked, row_chunks, row_scores, wide_dtype
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    OfRows = Callable[[slice], Tensor]


def prepare_choice(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of the inputs of a choice that gives the places of the best, or -1."""
    import torch

    places, scored = setup.case.size("top"), _SCORES[setup.case.operation]

    def best(scores: Tensor) -> Tensor:
        best, indices = scores.topk(min(places, scores.shape[-1]), dim=-1)
        indices = indices.masked_fill(best.isneginf(), -1).int()
        return torch.nn.functional.pad(indices, (0, places - indices.shape[-1]), value=-1)

    def call(*inputs: Tensor) -> Tensor:
        of_rows = scored(setup, *inputs)
        return torch.cat([best(of_rows(rows)) for rows in row_chunks(setup)], dim=2)

    return call


def _of_keys(setup: Setup, q: Tensor, k: Tensor, weights: Tensor) -> OfRows:
    import torch

    case, wide = setup.case, wide_dtype(setup)
    k = k.repeat_interleave(case.group, dim=1)

    def of_rows(rows: slice) -> Tensor:
        keys = k[:, :, rows] if setup.rule.pairs_keys else k
        scores = masked(setup, row_scores(setup, q[:, :, rows], keys).to(wide), rows)
        kept = ~torch.unflatten(scores.isneginf(), 1, (case.Hkv, -1)).any(2)
        own = weights[:, :, rows, None].to(wide) * scores.relu()
        total = torch.unflatten(own, 1, (case.Hkv, -1)).sum(2)
        return total.masked_fill(~kept, -torch.inf)

    return of_rows


def _of_means(setup: Setup, q: Tensor, k: Tensor) -> OfRows:
    import torch

    case, wide = setup.case, wide_dtype(setup)
    ends = list(range(case.size("block"), case.Lk, case.size("block")))
    means = torch.stack([keys.mean(2) for keys in torch.tensor_split(k, ends, dim=2)], dim=2)
    means = means.repeat_interleave(case.group, dim=1)

    def of_rows(rows: slice) -> Tensor:
        kept = ~_largest(setup, _pairs(setup, q, rows)).isneginf()
        return _chosen_first(row_scores(setup, q[:, :, rows], means).to(wide), kept, 0, 1)

    return of_rows


def _of_largest(setup: Setup, q: Tensor, k: Tensor) -> OfRows:
    case, wide = setup.case, wide_dtype(setup)
    k = k.repeat_interleave(case.group, dim=1)

    def of_rows(rows: slice) -> Tensor:
        keys = k[:, :, rows] if setup.rule.pairs_keys else k
        scores = _largest(setup, masked(setup, row_scores(setup, q[:, :, rows], keys).to(wide), rows))
        return _chosen_first(scores, ~scores.isneginf(), 0, 1)

    return of_rows


def _of_compressed(setup: Setup, q: Tensor, k: Tensor) -> OfRows:
    import torch

    case, wide = setup.case, wide_dtype(setup)
    length, stride, block = (case.size(name) for name in ("length", "stride", "block"))
    begin = stride * torch.arange(k.shape[2], device=q.device)[:, None]
    first = block * torch.arange(-(-case.Lk // block), device=q.device)
    inside = torch.minimum(begin + length, first + block) - torch.maximum(begin, first)
    shares = inside.clamp(min=0).to(wide) / stride
    k = k.repeat_interleave(case.group, dim=1)

    def of_rows(rows: slice) -> Tensor:
        pairs = _pairs(setup, q, rows)
        scores = row_scores(setup, q[:, :, rows], k).to(wide)
        weights = (scores + pairs.unfold(-1, length, stride).amin(-1)).softmax(-1)
        # A query that sees none has no weights.
        total = torch.unflatten(weights.nan_to_num(0) @ shares, 1, (case.Hkv, -1)).sum(2)
        kept = torch.unflatten(~_largest(setup, pairs).isneginf(), 1, (case.Hkv, -1)).all(2)
        return _chosen_first(total, kept, 1, 2)

    return of_rows


_SCORES: dict[str, Callable[..., OfRows]] = {
    "select": _of_keys,
    "select_mean": _of_means,
    "select_largest": _of_largest,
    "select_compressed": _of_compressed,
}
"""By operation, the function that returns the scores of some rows."""


def _pairs(setup: Setup, q: Tensor, rows: slice) -> Tensor:
    """Return 0 for pairs of some rows that the mask keeps and -inf for others, (B, H, R, Lk)."""
    own = q[:, :, rows, :1].to(wide_dtype(setup))
    return masked(setup, own.new_zeros(*own.shape[:3], setup.case.Lk), rows)


def _largest(setup: Setup, scores: Tensor) -> Tensor:
    """Return the largest score of each block, (…, blocks)."""
    import torch

    block = setup.case.size("block")
    whole = torch.nn.functional.pad(scores, (0, -scores.shape[-1] % block), value=-torch.inf)
    return torch.unflatten(whole, -1, (-1, block)).amax(-1)


def _chosen_first(scores: Tensor, kept: Tensor, first: int, last: int) -> Tensor:
    """Return the scores of kept blocks, with those of the first and the last so many above all others."""
    import torch

    ends = kept & ((kept.cumsum(-1) <= first) | (kept.flip(-1).cumsum(-1).flip(-1) <= last))
    return scores.masked_fill(~kept, -torch.inf).masked_fill(ends, torch.inf)
