"""Latent attention (MLA) in its two forms of one output: with heads of their own, or with one latent head.

DeepSeek-V2, 2024, section 2.1. Of each token a cache holds c (C features) and a rotated part r (R), which all
heads share. Expanded, head h has the keys [c·W_kᵀ ; r] and the values c·W_vᵀ. Absorbed, its queries become
[q·W_k ; q_rotated], the keys of all heads are [c ; r], the values c, and W_v maps the output. The scale is
that of the expanded heads in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def expanded(kv: Tensor, w_k: Tensor, w_v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys (B, H, L, N + R) and the values (B, H, L, V) of all heads.

    kv: (B, 1, L, C + R), c and the rotated part. w_k: (H, N, C). w_v: (H, V, C).
    """
    import torch

    c, rotated = kv[..., : w_k.shape[-1]], kv[..., w_k.shape[-1] :]
    keys = torch.cat([c @ w_k.mT, rotated.expand(-1, w_k.shape[0], -1, -1)], -1)
    return keys, c @ w_v.mT


def absorbed(q: Tensor, w_k: Tensor) -> Tensor:
    """Return queries for the latent head, (B, H, L, C + R), from those of the heads, (B, H, L, N + R)."""
    import torch

    own, rotated = q[..., : w_k.shape[1]], q[..., w_k.shape[1] :]
    return torch.cat([own @ w_k, rotated], -1)


def mapped(out: Tensor, w_v: Tensor) -> Tensor:
    """Return the output of the heads, (B, H, L, V), from that of the latent head, (B, H, L, C)."""
    return out @ w_v.mT
