"""dequantise_sdpa: encoded keys and values are read back whole, then torch's own attention.

Of a batch one sequence after the other, from packed tokens or from pages that are copied together.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, cast

from attnbench.backends.per_sequence import SequenceAttention, joined
from attnbench.backends.sdpa import attention, attention_with_lse, refuse_cap
from attnbench.kit.encodings import ENCODINGS, dequantiser, has_runs, has_tokens
from attnbench.kit.problems import ranges
from attnbench.types.backend import Backend, Setup
from attnbench.types.problem import problems_of, stored_inputs
from attnbench.types.storage import KEYS_OF_RUN

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def prepare(setup: Setup) -> Call:
    """Return the function of q and the encoded tensors."""
    if setup.case.batch:
        return OneByOne(setup)
    dequantise = dequantiser(setup.case)
    attend = (attention_with_lse if setup.case.returns else attention)(setup)

    def call(q: Tensor, *encoded: Tensor) -> Tensor:
        return attend(q, *dequantise(*encoded))

    return cast("Call", call)


class OneByOne:
    """The prepared function of a batch."""

    def __init__(self, setup: Setup) -> None:
        self.sequences, self.dequantise = SequenceAttention(setup), dequantiser(setup.case)
        stored = stored_inputs(problems_of(setup.case)[0], setup.rule)
        self.encoded = len(stored) - 1
        self.by_token = [has_tokens(setup.case, place) for place in range(self.encoded)]
        self.by_run = [has_runs(setup.case, place) for place in range(self.encoded)]
        self.paged = setup.case.storage == "paged"
        self.queries: list[slice] = []
        self.places: list[Any] = []
        self.runs: list[Any] = []

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Read where the queries and the keys of each sequence lie."""
        self.queries = ranges(ahead["cu_seqlens_q"])
        if self.paged:
            self.places = list(zip(ahead["block_table"].long(), ahead["seqused_k"].tolist(), strict=True))
            self.runs = [table[: -(-length // KEYS_OF_RUN)] for table, length in self.places]
        else:
            self.places = ranges(ahead["cu_seqlens_k"])
            counts = (-(-(place.stop - place.start) // KEYS_OF_RUN) for place in self.places)
            self.runs = [slice(*ends) for ends in pairwise(accumulate(counts, initial=0))]

    def _tokens(self, x: Tensor, place: Any) -> Tensor:
        """Return the tokens of a sequence as (1, Hkv, L, ·)."""
        if self.paged:
            pages, length = place
            x = x[pages[: -(-length // x.shape[1])]].flatten(0, 1)[:length]
        else:
            x = x[place]
        return x.transpose(0, 1)[None]

    def _part(self, x: Tensor, place: int, number: int) -> Tensor:
        """Return what an encoded tensor holds for a sequence."""
        if self.by_token[place]:
            return self._tokens(x, self.places[number])
        if self.by_run[place]:
            return x[self.runs[number]].transpose(0, 1)[None]
        # A scale of the whole cache is one for all.
        return x if len(x) == 1 else x[number : number + 1]

    def __call__(self, q: Tensor, *others: Tensor) -> Tensor:
        """Read back the keys and values of each sequence, and attend."""
        answers, encoded = [], others[: self.encoded]
        for number, rows in enumerate(self.queries):
            own = [self._part(x, place, number) for place, x in enumerate(encoded)]
            keys, values = (x[0].transpose(0, 1) for x in self.dequantise(*own))
            answers.append(self.sequences.attend(number, q[rows], keys, values))
        return joined(answers)


DEQUANTISE_SDPA = Backend(
    name="dequantise_sdpa",
    summary="codes to numbers of the dtype, then torch SDPA",
    prepare=prepare,
    supports=refuse_cap,
    storages=("dense", "packed", "paged"),
    encodings=ENCODINGS,
    returns=("lse",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)
