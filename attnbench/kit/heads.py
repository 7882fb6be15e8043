"""Query heads that share key/value heads (GQA, MQA), without copying keys or values where that's possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def repeat_heads(x: Tensor, H: int) -> Tensor:
    """(B, Hkv, L, D) to (B, H, L, D): query head h gets key/value head ``h // (H // Hkv)``.

    A view where nothing has to be repeated and where there is one head; else a copy.
    """
    B, Hkv, L, D = x.shape
    if Hkv == H:
        return x
    if Hkv == 1:
        return x.expand(B, H, L, D)
    return x.repeat_interleave(H // Hkv, dim=1)


def matmul_shared(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` by head, for a (B, H, m, n) and b (B, Hkv, n, p): (B, H, m, p).

    The query heads of a group stand below each other as rows of one matrix, so b is not repeated.
    """
    B, H, m, n = a.shape
    Hkv = b.shape[1]
    if Hkv == H:
        return a @ b
    rows = a.reshape(B, Hkv, (H // Hkv) * m, n)
    return (rows @ b).reshape(B, H, m, b.shape[-1])
