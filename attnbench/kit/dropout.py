"""Dropout on the weights: nothing at all in a case without it, decided once, in preparation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.softmax import masked_softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.case import Case

    Softmax = Callable[[Tensor, Tensor | None, Tensor | None, Tensor | None], Tensor]


def softmax_of(case: Case) -> Softmax:
    """:func:`masked_softmax` itself, or where the case drops weights one that is followed by the dropout.

    Each weight is 0 with probability p, the others are divided by 1 - p; other ones in every call, from
    torch's own generator. Dropping the weight of a sink would change nothing, since it goes nowhere.
    """
    if not case.dropout:
        return masked_softmax
    from torch.nn.functional import dropout

    p = case.dropout

    def dropping(scores: Tensor, added: Tensor | None, empty: Tensor | None, sink: Tensor | None) -> Tensor:
        return dropout(masked_softmax(scores, added, empty, sink), p)

    return dropping
