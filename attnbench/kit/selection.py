"""Attention to selected keys in torch: the plain reference of ``selected``, and pieces for backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.reference import row_chunks, row_scores, row_weights, wide_dtype
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case


def prepare(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of q, k, v and indices that scores all keys and drops those that are not chosen."""
    import torch

    case, rule, wide = setup.case, setup.rule, wide_dtype(setup)

    def call(q: Tensor, k: Tensor, v: Tensor, indices: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(case.group, dim=1) for x in (k, v))
        found = []
        for rows in row_chunks(setup):
            keys = k[:, :, rows] if rule.pairs_keys else k
            scores = row_scores(setup, q[:, :, rows], keys).to(wide)
            chosen = chosen_keys(case, indices[:, :, rows]).repeat_interleave(case.group, dim=1)
            weights = row_weights(setup, scores.masked_fill(~chosen, -torch.inf), rows, False)
            found.append(weights.to(q.dtype) @ v)
        return torch.cat(found, dim=2)

    return call


def chosen_keys(case: Case, indices: Tensor) -> Tensor:
    """Return which keys indices (B, Hkv, R, top) name: bool (B, Hkv, R, Lk)."""
    import torch

    block = case.size("block")
    blocks = -(-case.Lk // block)
    named = torch.zeros(*indices.shape[:-1], blocks + 1, dtype=torch.bool, device=indices.device)
    # Unused places name one block more, which is then left out.
    named.scatter_(-1, indices.long().masked_fill(indices < 0, blocks), True)
    return named[..., :-1].repeat_interleave(block, dim=-1)[..., : case.Lk]


def key_places(case: Case, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the chosen keys, (B, Hkv, R, top · block), and which of them are keys.

    Those that are not have the place 0.
    """
    import torch

    block = case.size("block")
    within = torch.arange(block, device=indices.device)
    places = (indices.long()[..., None] * block + within).flatten(-2)
    valid = (indices >= 0).repeat_interleave(block, dim=-1) & (places < case.Lk)
    return places.masked_fill(~valid, 0), valid
