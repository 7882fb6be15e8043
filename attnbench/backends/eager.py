"""eager: matmul, softmax, matmul, as most people write it. The baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.attention import attention, weights
from attnbench.kit.layer import for_operation
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import AUTOCAST, PASSES

if TYPE_CHECKING:
    from attnbench.types.backend import Call


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return for_operation(attention(setup), setup)


EAGER = Backend(
    name="eager",
    summary="matmul, softmax (float32 for half precision), matmul",
    prepare=prepare,
    operations=("attention", "multihead"),
    passes=PASSES,
    autocast=AUTOCAST,
    concurrent=True,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
    weights=weights,
)
