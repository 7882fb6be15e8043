"""dequantise_blocks: encoded keys and values are read back a block at a time, as a fused kernel does."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from attnbench.backends.chunked import blockwise
from attnbench.kit.encodings import ENCODINGS, dequantiser, of_tokens
from attnbench.kit.scores import map_keys
from attnbench.types.backend import Backend, Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


def prepare(setup: Setup) -> Call:
    """Return the function of q and the encoded tensors."""
    case, dot = setup.case, setup.scoring.dot
    dequantise, over_blocks = dequantiser(case), blockwise(setup)

    def call(q: Tensor, *encoded: Tensor) -> Tensor:
        def of_block(_: slice, tokens: slice) -> tuple[Tensor, Tensor]:
            k, v = dequantise(*of_tokens(case, encoded, tokens))
            return (k if dot is None else map_keys(dot, k)), v

        return over_blocks(q, of_block)

    return cast("Call", call)


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse rules whose keys belong to queries."""
    return "reads keys and values of the same tokens" if rule.pairs_keys else None


DEQUANTISE_BLOCKS = Backend(
    name="dequantise_blocks",
    summary="codes to numbers a block at a time, online softmax: O(L) memory",
    prepare=prepare,
    supports=supports,
    encodings=ENCODINGS,
    quadratic_copies=0,
    masks=("any",),
    masks_by_head=True,
)
