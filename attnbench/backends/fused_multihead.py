"""fused_multihead: combined matrices for all heads, in self-attention one for q, k and v together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.attention import attention
from attnbench.kit.layer import around, output_projection, split_heads
from attnbench.kit.scores import derived
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def prepare(setup: Setup) -> Call:
    """Make one matrix product for q, k and v in self-attention; three where keys have another source."""
    import torch
    from torch.nn.functional import linear

    case, p = setup.case, setup.projections
    attend = attention(setup)
    if not case.is_self_attention:
        return around(attend, setup)
    widths = [case.H * case.D, case.Hkv * case.D, case.Hkv * case.Dv]
    project_out = output_projection(setup)

    def made(setup: Setup) -> Call:
        weight = torch.cat([p["w_q"], p["w_k"], p["w_v"]])
        bias = torch.cat([p["b_q"], p["b_k"], p["b_v"]]) if "b_q" in p else None

        def layer(x: Tensor, _keys: Tensor, _values: Tensor) -> Tensor:
            q, k, v = torch.split(linear(x, weight, bias), widths, dim=-1)
            heads = attend(split_heads(q, case.H), split_heads(k, case.Hkv), split_heads(v, case.Hkv))
            return project_out(q, heads)

        return layer

    return derived(setup, made)


FUSED_MULTIHEAD = Backend(
    name="fused_multihead",
    summary="combined projection matrices, view + transpose, matmul, softmax, matmul",
    prepare=prepare,
    operations=("multihead",),
    passes=PASSES,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
)
