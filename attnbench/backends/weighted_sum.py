"""weighted_sum: values[:, None] × weights, summed over the keys: the outer form of textbooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.attention import softmax_of, weights
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation, repeat_heads
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import derived, scores_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

LARGEST_BYTES = 1 << 30


def attention(setup: Setup) -> Call:
    """Store every weighted value, then sum over the keys."""
    case = setup.case
    dtype = softmax_dtype(case_dtype(case))
    mask, empty = softmax_mask(setup, dtype)
    queries, keys = slice(0, case.Lq), slice(0, case.Lk)
    softmax = softmax_of(case)

    def made(setup: Setup) -> Call:
        sink = setup.scoring.sink
        scores = scores_of(setup.scoring)
        added = plus_bias(mask, setup.scoring, queries, keys, dtype)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            weights = softmax(scores(q, k, keys), added, empty, sink)
            # (B, H, Lk, 1, Dv) × (B, H, Lk, Lq, 1), summed over the keys.
            weighted = repeat_heads(v, case.H)[:, :, :, None] * weights.mT[..., None]
            return weighted.sum(dim=2)

        return attend

    return derived(setup, made)


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse cases whose weighted values take more than a GiB."""
    needed = case.B * case.H * case.Lq * case.Lk * case.Dv * case.item_bytes
    if needed <= LARGEST_BYTES:
        return None
    return (
        f"stores B·H·Lq·Lk·Dv weighted values, {needed / 2**30:.1f} GiB here; "
        f"at most {LARGEST_BYTES / 2**30:.0f} GiB is allowed"
    )


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return for_operation(attention(setup), setup)


WEIGHTED_SUM = Backend(
    name="weighted_sum",
    summary="values[:, None] × weights, summed: the textbook outer form",
    prepare=prepare,
    supports=supports,
    operations=("attention", "multihead"),
    passes=PASSES,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
    weights=weights,
)
