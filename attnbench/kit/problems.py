"""The problems of a case for backends: a setup for each sequence of a batch, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from attnbench.types.backend import Setup
from attnbench.types.problem import problems_of

if TYPE_CHECKING:
    from torch import Tensor


def problem_setups(setup: Setup) -> tuple[Setup, ...]:
    """Return a setup of each problem, with the rule bound to it and the same parameters.

    They ask for the output alone. Of a case without a batch and further outputs it is the setup itself.
    """
    case = setup.case
    if not case.batch and not case.returns:
        return (setup,)
    alone = [replace(problem, returns=()) for problem in problems_of(case)]
    own, bind = setup.rule_parameters, setup.rule.bind
    return tuple(Setup(one, setup.rule, bind(one, own), own, setup.projections) for one in alone)


def ranges(cumulative: Tensor) -> list[slice]:
    """Return the range of each sequence from cumulative lengths, (N + 1,)."""
    return [slice(start, end) for start, end in pairwise(cumulative.tolist())]


def table_too_small(width: int, lengths: Sequence[int], page: int) -> str | None:
    """Return what a table of so many pages a sequence lacks for so many keys in pages of a size, or None."""
    for number, length in enumerate(lengths):
        needed = -(-length // page)
        if needed > width:
            return (
                f"the block table has {width} pages a sequence; sequence {number} needs {needed} for "
                f"{length} keys in pages of {page}"
            )
    return None


def flashinfer_tables(block_table: Tensor, lengths: Tensor, page: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return where keys lie in the words of flashinfer: indptr (N + 1), indices (pages), last_page_len (N).

    All are int32 on the device of the table. The pages of sequence n are indices[indptr[n] : indptr[n + 1]],
    and its last page holds last_page_len[n] keys. Source: "Page Table Layout" in flashinfer's documentation,
    "KV-Cache Layout in FlashInfer".

    block_table: (N, most pages), of which entries behind a sequence's last page are left out. lengths: (N,),
    the numbers of keys. page: the keys in a page.

    Raises:
        ValueError: a sequence has no key, since last_page_len is at least 1; or more than the table names
            pages for.
    """
    import torch

    counts = lengths.tolist()
    if 0 in counts:
        raise ValueError(
            f"sequence {counts.index(0)} has no keys: flashinfer's last_page_len is 1 to {page}, so decline "
            "such batches in supports, or leave the sequence out of the call"
        )
    missing = table_too_small(block_table.shape[1], counts, page)
    if missing:
        raise ValueError(missing)
    lengths = lengths.to(block_table.device)
    pages = (lengths + page - 1) // page
    own = torch.arange(block_table.shape[1], device=pages.device) < pages[:, None]
    indptr = torch.cat([pages.new_zeros(1), pages.cumsum(0)])
    last = lengths - (pages - 1) * page
    return indptr.int(), block_table[own].int(), last.int()
