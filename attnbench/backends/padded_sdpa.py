"""padded_sdpa: sequences padded to the longest one, and torch's own attention with a mask.

So does a program whose library has no functions for unlike lengths. Packed sequences are padded in the call,
so that is part of what is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from attnbench.backends.sdpa import call_with, call_with_lse, mask_dtype, refuse_cap
from attnbench.kit.attention import with_sink_column
from attnbench.kit.masks import additive_mask
from attnbench.kit.problems import problem_setups
from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES, Case
from attnbench.types.problem import is_empty
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def prepare(setup: Setup) -> Call:
    """Return the function of packed sequences, or of those that are padded already."""
    return Padded(setup) if setup.case.storage == "packed" else as_padded(setup)


def as_padded(setup: Setup) -> Call:
    """Make the function of padded q, k and v; the case says the lengths, so those it is given say no more."""
    case, mask, sink = setup.case, padded_mask(setup), setup.scoring.sink
    if "lse" in case.returns:
        attend = call_with_lse(setup, mask, False)
    else:
        attend = call_with(setup, mask if sink is None else with_sink_column(mask, sink, case), False)
    return cast("Call", lambda q, k, v, *lengths: attend(q, k, v))


class Padded:
    """The prepared function of packed sequences."""

    def __init__(self, setup: Setup) -> None:
        self.case, self.attend = setup.case, as_padded(setup)
        self.lse = "lse" in setup.case.returns

    def renew(self, ahead: Mapping[str, Any]) -> None:
        """Find the place of each query and key among the padded ones."""
        self.queries = padded_places(ahead["cu_seqlens_q"], self.case.Lq)
        self.keys = padded_places(ahead["cu_seqlens_k"], self.case.Lk)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        """Pad, attend, and leave out the padding of the output."""
        case = self.case
        q = _padded(q, self.queries, case.B, case.Lq)
        k, v = (_padded(x, self.keys, case.B, case.Lk) for x in (k, v))
        found = self.attend(q, k, v)
        parts = cast("tuple[Tensor, Tensor]", found) if self.lse else (found,)
        own = tuple(part.transpose(1, 2).flatten(0, 1)[self.queries] for part in parts)
        return cast("Tensor", own) if self.lse else own[0]


def padded_mask(setup: Setup) -> Tensor:
    """Make the float mask of all sequences with their bias, (N, 1 or H, Lq, Lk): -inf where there is no key.

    Queries of the padding see every key, since a softmax without any may give NaN.
    """
    import torch

    case = setup.case
    dtype = mask_dtype(case)
    own = [
        None if is_empty(one.case) else additive_mask(one.case, dtype, case.device, one.scoring)
        for one in problem_setups(setup)
    ]
    heads = max((1 if mask is None else mask.shape[1] for mask in own), default=1)
    whole = torch.zeros(case.B, heads, case.Lq, case.Lk, dtype=dtype, device=case.device)
    for number, (one, mask) in enumerate(zip(problem_setups(setup), own, strict=True)):
        rows, keys = one.case.Lq, one.case.Lk
        whole[number, :, :rows, keys:] = -torch.inf
        if mask is not None:
            whole[number, :, :rows, :keys] = mask[0]
    return whole


def padded_places(cumulative: Tensor, longest: int) -> Tensor:
    """Return the place of each token among ``longest`` ones of each sequence, (T,) int64."""
    import torch

    lengths = cumulative.diff().long()
    starts = torch.arange(len(lengths), device=lengths.device) * longest - cumulative[:-1]
    tokens = torch.arange(int(lengths.sum()), device=lengths.device)
    return starts.repeat_interleave(lengths) + tokens


def _padded(x: Tensor, places: Tensor, sequences: int, longest: int) -> Tensor:
    """Pad (T, H, D) with zeros to (N, H, longest, D)."""
    whole = x.new_zeros(sequences * longest, *x.shape[1:])
    whole.index_copy_(0, places, x)
    return whole.view(sequences, longest, *x.shape[1:]).transpose(1, 2)


def _supports(case: Case, rule: Rule) -> str | None:
    dot = form_of(case, rule).dot
    if dot is not None and (dot.map_q is not None or dot.map_k is not None):
        return f"maps no queries and keys, as {rule.name} does: they may depend on the lengths"
    return refuse_cap(case, rule)


PADDED_SDPA = Backend(
    name="padded_sdpa",
    summary="sequences padded to the longest, torch SDPA with a mask",
    prepare=prepare,
    supports=_supports,
    passes=PASSES,
    storages=("packed", "padded"),
    returns=("lse",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)
