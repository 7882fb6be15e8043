"""Sinks for kernels that know none: one more key and value of zeros, whose score is the sink's logit.

A query's product with a zero key is 0, so the additive mask alone gives that column its score, and a
zero value adds nothing to the output. The softmax over one more key is the softmax with a sink: Xiao et
al. 2023, Efficient Streaming Language Models with Attention Sinks, section 3.3 (zero sink, with a logit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case


def with_zero_row(x: Tensor) -> Tensor:
    """Keys or values with a row of zeros after the last: (B, Hkv, L, D) to (B, Hkv, L + 1, D)."""
    from torch.nn.functional import pad

    return pad(x, (0, 0, 0, 1))


def with_sink_column(added: Tensor | None, sink: Tensor, case: Case) -> Tensor:
    """The additive mask with the column of the sink: (B or 1, H, Lq, Lk + 1), in the dtype of ``added``.

    That of the sink where nothing else is added.
    """
    import torch

    if added is None:
        added = torch.zeros(1, 1, case.Lq, case.Lk, dtype=sink.dtype, device=sink.device)
    added = added.expand(added.shape[0], case.H, case.Lq, case.Lk)
    column = sink.to(added.dtype).view(1, -1, 1, 1).expand(added.shape[0], case.H, case.Lq, 1)
    return torch.cat((added, column), dim=-1)
