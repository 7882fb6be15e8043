"""Heads, and the layer around them: projections, heads apart, attention, heads merged, output projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup


def for_operation(attend: Call, setup: Setup) -> Call:
    """Return ``attend`` itself for ``attention``, and the layer around it for ``multihead``."""
    return attend if setup.case.layer is None else around(attend, setup)


def around(attend: Call, setup: Setup) -> Call:
    """Make the function of a ``multihead`` case around one of ``attention``.

    attend: takes q (B, H, Lq, D), k (B, Hkv, Lk, D), v (B, Hkv, Lk, Dv), which are strided views, and gives
    (B, H, Lq, Dv). The result takes the sources of queries, keys and values, (B, L, E) each, and gives
    (B, Lq, E), or (B, Lq, H·Dv) without output projection.
    """
    from torch.nn.functional import linear

    case, p = setup.case, setup.projections
    w_q, w_k, w_v = p["w_q"], p["w_k"], p["w_v"]
    b_q, b_k, b_v = p.get("b_q"), p.get("b_k"), p.get("b_v")
    H, Hkv = case.H, case.Hkv
    project_out = output_projection(setup)

    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q = linear(queries, w_q, b_q)
        k = linear(keys, w_k, b_k)
        v = linear(values, w_v, b_v)
        return project_out(q, attend(split_heads(q, H), split_heads(k, Hkv), split_heads(v, Hkv)))

    return layer


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View (B, L, heads·D) as (B, heads, L, D)."""
    B, L, width = x.shape
    return x.view(B, L, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, heads, L, D) to (B, L, heads·D)."""
    return x.transpose(1, 2).flatten(2)


def output_projection(setup: Setup) -> Callable[[Tensor, Tensor], Tensor]:
    """Make the layer's last step: a function of projected queries (B, Lq, H·D) and outputs (B, H, Lq, Dv).

    For a rule that concatenates it projects [queries ; merged heads], for others the merged heads. Without
    output projection it only merges.
    """
    import torch
    from torch.nn.functional import linear

    w_o, b_o = setup.projections.get("w_o"), setup.projections.get("b_o")
    concatenates = setup.rule.concatenates

    def project_out(q: Tensor, heads: Tensor) -> Tensor:
        merged = merge_heads(heads)
        if w_o is None:
            return merged
        if concatenates:
            merged = torch.cat((q, merged), dim=-1)
        return linear(merged, w_o, b_o)

    return project_out


def repeat_heads(x: Tensor, H: int) -> Tensor:
    """(B, Hkv, L, D) to (B, H, L, D): query head h gets key/value head ``h // (H // Hkv)``.

    A view where Hkv is H or 1; else a copy.
    """
    B, Hkv, L, D = x.shape
    if Hkv == H:
        return x
    if Hkv == 1:
        return x.expand(B, H, L, D)
    return x.repeat_interleave(H // Hkv, dim=1)


def matmul_shared(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` by head, for a (B, H, m, n) and b (B, Hkv, n, p): (B, H, m, p).

    The query heads of a group become rows of one matrix, so that b is not repeated.
    """
    B, H, m, n = a.shape
    Hkv = b.shape[1]
    if Hkv == H:
        return a @ b
    rows = a.reshape(B, Hkv, (H // Hkv) * m, n)
    return (rows @ b).reshape(B, H, m, b.shape[-1])
