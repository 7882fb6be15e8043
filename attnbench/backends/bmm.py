"""bmm: batch and heads in one axis, two batched matrix products, scale and mask inside the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.attention import softmax_of
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import derived, map_keys, map_queries, soft_cap
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import AUTOCAST, PASSES

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Weigh


def attention(setup: Setup) -> Call:
    """Fold the query heads of a group into rows: (B·Hkv, group·Lq, D) × (B·Hkv, D, Lk)."""
    import torch

    case = setup.case
    masks = softmax_mask(setup, softmax_dtype(case_dtype(case)))

    def made(setup: Setup) -> Call:
        weigh = _weigh(setup, *masks)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.bmm(weigh(q, k), v.flatten(0, 1)).view(case.B, case.H, case.Lq, case.Dv)

        return attend

    return derived(setup, made)


def _weigh(setup: Setup, mask: Tensor | None, empty: Tensor | None) -> Weigh:
    """Weights of all heads with their groups folded: (B·Hkv, group·Lq, Lk)."""
    import torch

    case, scoring = setup.case, setup.scoring
    dot = scoring.dot
    assert dot is not None
    B, H, Hkv, Lq, Lk = case.B, case.H, case.Hkv, case.Lq, case.Lk
    dtype = case_dtype(case)
    added = plus_bias(mask, scoring, slice(0, Lq), slice(0, Lk), softmax_dtype(dtype))
    # Not with half precision (float32 mask), a cap (comes before the mask) or a group (other row order).
    starts_with_mask = added is not None and added.dtype == dtype and dot.cap is None and Hkv == H
    if added is not None and starts_with_mask:
        base, beta = added.expand(B, H, Lq, Lk).flatten(0, 1), 1
    else:
        base, beta = torch.zeros((), dtype=dtype, device=case.device), 0
    simple = scoring.sink is None and softmax_dtype(dtype) == dtype and (added is None or starts_with_mask)
    simple = simple and not case.dropout
    # A backward pass needs the scores that an in-place softmax would overwrite.
    in_place = simple and case.pass_ == "forward"
    softmax = softmax_of(case)

    def weigh(q: Tensor, k: Tensor) -> Tensor:
        rows = map_queries(dot, q).reshape(B * Hkv, -1, case.D)
        columns = map_keys(dot, k).flatten(0, 1).transpose(1, 2)
        scores = torch.baddbmm(base, rows, columns, beta=beta, alpha=dot.scale)
        if in_place:
            scores = soft_cap(dot, scores)
            # In place: nothing needs the scores again.
            weights = torch.softmax(scores, dim=-1, out=scores)
            if empty is not None:
                weights.view(B, H, Lq, Lk).masked_fill_(empty, 0)
        else:
            capped = soft_cap(dot, scores.view(B, H, Lq, Lk))
            rest = None if starts_with_mask else added
            weights = softmax(capped, rest, empty, scoring.sink).reshape(B * Hkv, -1, Lk)
        return weights

    return weigh


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return for_operation(attention(setup), setup)


BMM = Backend(
    name="bmm",
    summary="batch and heads folded: baddbmm with scale and mask, softmax in place, bmm",
    prepare=prepare,
    operations=("attention", "multihead"),
    passes=PASSES,
    autocast=AUTOCAST,
    concurrent=True,
    needs_dot_form=True,
    quadratic_copies=1,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
)
