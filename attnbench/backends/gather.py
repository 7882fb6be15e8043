"""gather: pages of a cache copied together by the table, and torch's own attention of each sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnbench.backends.per_sequence import SequenceAttention, joined
from attnbench.backends.sdpa import refuse_cap
from attnbench.kit.problems import ranges
from attnbench.types.backend import Backend, Setup

if TYPE_CHECKING:
    from torch import Tensor


class Gather:
    """The prepared function."""

    def __init__(self, setup: Setup) -> None:
        self.sequences = SequenceAttention(setup)
        self.places: list[tuple[slice, Tensor, int]] = []

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Read the queries, the pages and the number of keys of each sequence."""
        table, lengths = ahead["block_table"], ahead["seqused_k"].tolist()
        # The cache is not known here; the size of a page follows from it in the call.
        self.places = list(zip(ranges(ahead["cu_seqlens_q"]), table.long(), lengths, strict=True))

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Tensor:
        """Copy the pages of each sequence together, and attend."""
        answers = []
        for number, (rows, pages, length) in enumerate(self.places):
            own = pages[: -(-length // k.shape[1])]
            keys, values = (x[own].flatten(0, 1)[:length] for x in (k, v))
            answers.append(self.sequences.attend(number, q[rows], keys, values))
        return joined(answers)


GATHER = Backend(
    name="gather",
    summary="pages copied together by the table, then torch SDPA of each sequence",
    prepare=Gather,
    supports=refuse_cap,
    storages=("paged",),
    returns=("lse",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)
