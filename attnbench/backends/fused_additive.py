"""fused_additive: additive scores as quotients of matrix products, in tiles: O(L) memory, both passes.

The exponential form of tanh takes exp of L·D elements instead of tanh of L·L·D, and groups of features
share a division (``additive_factors``). Large products are oneDNN's (``additive_products``). Pairs too far
out are computed by tanh itself (``additive_pairs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.backends.additive_attention import Walk, attend
from attnbench.backends.additive_tiles import heads_together, tile_shapes
from attnbench.backends.chunks import chunks_of, pairs_in_blocks
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation, repeat_heads
from attnbench.kit.scores import derived
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call

SMALL_COSTS = 1.4
"""How much longer a pair takes in a small tile."""


def attention(setup: Setup) -> Call:
    """Half precision is computed in float32 from the projections on."""
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
    """In large tiles, or in small ones where the mask makes that less work."""
    case = setup.case
    large, small = tile_shapes(case.Lq, case.Lk)
    fewer = pairs_in_blocks(case, small) * SMALL_COSTS < pairs_in_blocks(case, large)
    shape = small if fewer else large
    return Walk(heads_together(case.H, shape), chunks_of(setup, dtype, shape))


def prepare(setup: Setup) -> Call:
    """For either operation."""
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
