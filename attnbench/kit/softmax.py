"""The softmax of attention: in float32 for half precision, with sinks, and 0 where nothing is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dtypes import softmax_dtype

if TYPE_CHECKING:
    from torch import Tensor


def masked_softmax(
    scores: Tensor, added: Tensor | None = None, empty: Tensor | None = None, sink: Tensor | None = None
) -> Tensor:
    """Weights over the keys, (B, H, rows, cols), in the dtype of the scores.

    added: mask and bias, from :func:`attnbench.kit.masks.additive_mask`, best in the dtype that
    :func:`attnbench.kit.dtypes.softmax_dtype` gives. empty: rows that keep no key, from
    :func:`attnbench.kit.masks.empty_rows`: their weights are exactly 0. sink: (H,) logits, one more
    column for each head, whose weight goes nowhere.
    """
    import torch

    dtype = scores.dtype
    scores = scores.to(softmax_dtype(dtype))
    if added is not None:
        scores = scores + added
    if sink is None:
        weights = torch.softmax(scores, dim=-1)
        if empty is not None:
            weights = weights.masked_fill(empty, 0)
        return weights.to(dtype)
    # A row that keeps no key gives all its weight to the sink, so it needs no care of its own.
    column = sink.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1].to(dtype)
