"""weighted_sum: values[:, None] × weights, summed over the keys: the outer form of textbooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dropout import softmax_of
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.heads import repeat_heads
from attnbench.kit.layer import for_operation
from attnbench.kit.masks import additive_mask, empty_rows
from attnbench.kit.scores import scores_of
from attnbench.types.backend import Backend, Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

LARGEST_BYTES = 1 << 30


def attention(setup: Setup) -> Call:
    """Every weighted value is written down before they are summed."""
    case, scoring = setup.case, setup.scoring
    scores = scores_of(scoring)
    added = additive_mask(case, softmax_dtype(case_dtype(case)), case.device, scoring)
    empty = empty_rows(case, case.device)
    every = slice(0, case.Lk)
    softmax = softmax_of(case)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = softmax(scores(q, k, every), added, empty, scoring.sink)
        # (B, H, Lk, 1, Dv) × (B, H, Lk, Lq, 1), summed over the keys.
        weighted = repeat_heads(v, case.H)[:, :, :, None] * weights.mT[..., None]
        return weighted.sum(dim=2)

    return attend


def supports(case: Case, rule: Rule) -> str | None:
    """Refuses what would take more than a GiB for the weighted values."""
    needed = case.B * case.H * case.Lq * case.Lk * case.Dv * case.item_bytes
    if needed <= LARGEST_BYTES:
        return None
    return (
        f"writes down B·H·Lq·Lk·Dv weighted values, {needed / 2**30:.1f} GiB here; "
        f"it stops at {LARGEST_BYTES / 2**30:.0f} GiB"
    )


def prepare(setup: Setup) -> Call:
    """For either operation."""
    return for_operation(attention(setup), setup)


WEIGHTED_SUM = Backend(
    name="weighted_sum",
    summary="values[:, None] × weights, summed: the textbook outer form",
    prepare=prepare,
    supports=supports,
    operations=("attention", "multihead"),
    dropout=True,
)
