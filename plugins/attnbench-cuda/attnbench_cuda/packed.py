"""Packed and paged batches: what the calls of all libraries share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.scores import form_of
from attnbench.types.storage import sizes_of

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


class Kept:
    """A tensor that stays at its place in memory, since a captured graph of calls goes on reading there."""

    tensor: Tensor | None = None

    def write(self, values: Tensor) -> Tensor:
        """Write the values there, and return the tensor."""
        if self.tensor is None:
            self.tensor = values.clone()
        return self.tensor.copy_(values)


def starts_of(lengths: Tensor) -> Tensor:
    """Return where each sequence begins, and at last where they end, from their lengths: (N + 1,), int32."""
    import torch

    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))


def tokens_first(lse: Tensor, *, flipped: bool = False) -> Tensor:
    """Return a log-sum-exp (H, T) as (T, H). flipped: rows without keys have +inf, and get -inf."""
    import torch

    lse = lse.T.contiguous()
    # Not in place: of one head it may be the library's own tensor, which a backward pass reads.
    return lse.masked_fill(lse == torch.inf, -torch.inf) if flipped else lse


def refuse_maps(case: Case, rule: Rule, what: str) -> str | None:
    """Decline rules that change queries or keys: keys in a cache are what they are."""
    dot = form_of(case, rule).dot
    if dot is not None and (dot.map_q is not None or dot.map_k is not None):
        return f"{what}, as it is called here, maps no queries and keys, as {rule.name} does"
    return None


def refuse_pages(case: Case, what: str, multiple: int) -> str | None:
    """Decline pages whose number of keys is not a multiple of this one."""
    page = sizes_of(case).get("page", multiple)
    return f"{what} needs pages of a multiple of {multiple} keys, not {page}" if page % multiple else None
