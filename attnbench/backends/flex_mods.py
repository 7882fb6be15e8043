"""A case in the words of flex_attention: a function of each score, and which blocks are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.attention import with_sink_column
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.masks import additive_mask, keep_mask, plus_bias
from attnbench.masks import key_lengths

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case

    ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def score_mod(setup: Setup) -> ScoreMod | None:
    """What becomes of the score of query i and key j: cap, then bias and float mask; None for nothing.

    A sink is key Lk, whose vector is zero and whose score is the sink's logit.
    """
    import torch

    case, scoring = setup.case, setup.scoring
    assert scoring.dot is not None
    cap, sink, last = scoring.dot.cap, scoring.sink, case.Lk
    table = _added_table(setup)
    if cap is None and table is None and sink is None:
        return None

    def modify(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        if table is not None:
            return score + table[b, h, i, j]
        return score if sink is None else torch.where(j == last, sink[h], score)

    return modify


def block_mask(setup: Setup) -> BlockMask | None:
    """The blocks with a kept pair, and the function for those that also have a dropped one."""
    from torch.nn.attention.flex_attention import create_block_mask

    case, has_sink = setup.case, setup.scoring.sink is not None
    if case.mask.is_none:
        return None
    keep = _keep_by_table(case) if case.mask.explicit is not None else _keep_by_position(case)
    last = case.Lk
    by_batch = case.mask.padding is not None or case.mask.explicit is not None
    return create_block_mask(
        (lambda b, h, i, j: (j == last) | keep(b, h, i, j)) if has_sink else keep,
        case.B if by_batch else None,
        None,
        case.Lq,
        case.Lk + has_sink,
        device=case.device,
    )


def _added_table(setup: Setup) -> Tensor | None:
    """Bias and float mask as (B, H, Lq, Lk) numbers, with the column of a sink; None where there are none."""
    case, scoring = setup.case, setup.scoring
    dtype = softmax_dtype(case_dtype(case))
    if case.mask.explicit == "float":
        added = additive_mask(case, dtype, case.device, scoring)
    else:
        added = plus_bias(None, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
    if added is None:
        return None
    if scoring.sink is not None:
        added = with_sink_column(added, scoring.sink, case)
    return added.expand(case.B, case.H, *added.shape[2:])


def _keep_by_position(case: Case) -> MaskMod:
    """Causal, window and padding as arithmetic on positions, as :class:`attnbench.types.mask.Mask` says."""
    import torch

    causal, window, offset = case.mask.causal is not None, case.mask.window, case.query_offset
    drawn = key_lengths(case)
    lengths = None if drawn is None else torch.tensor(drawn, device=case.device)

    def keep(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        kept = j >= 0
        if causal:
            kept = kept & (j <= i + offset)
        if window is not None:
            kept = kept & (j < i + offset + window) & (j > i + offset - window)
        return kept if lengths is None else kept & (j < lengths[b])

    return keep


def _keep_by_table(case: Case) -> MaskMod:
    """An explicit mask, with one more column that nothing looks at but a sink's."""
    import torch
    from torch.nn.functional import pad

    drawn = keep_mask(case, case.device)
    if drawn is None:
        drawn = torch.ones(1, 1, case.Lq, case.Lk, dtype=torch.bool, device=case.device)
    table = pad(drawn, (0, 1), value=True)[:, 0].expand(case.B, case.Lq, case.Lk + 1)
    return lambda b, h, i, j: table[b, i, j]
