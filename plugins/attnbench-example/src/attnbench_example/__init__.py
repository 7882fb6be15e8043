"""The backend `example`: attention in blocks of queries, so that a block's scores stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from attnbench import Backend, Case, Mask, Rule, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor


def supports(case: Case, rule: Rule) -> str | None:
    """Return why a case can't be computed, or None if it can. Declined cases are never run."""
    if case.mask not in (Mask(), Mask(causal="upper_left")):
        return "no masks yet but causal from the upper left"
    return None


def prepare(setup: Setup) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Do once what depends on the case alone. attnbench checks and times the returned function."""
    import torch

    case, dot, blocks = setup.case, setup.scoring.dot, []
    assert dot is not None, "scaled_dot is a dot product"
    rows = max(1, 2**18 // (case.B * case.H * case.Lk))
    for start in range(0, case.Lq, rows):
        stop, seen, hidden = min(start + rows, case.Lq), case.Lk, None
        if case.mask.causal:
            seen = min(stop, case.Lk)
            hidden = torch.ones(stop - start, seen, dtype=torch.bool, device=case.device).triu(start + 1)
        blocks.append((slice(start, stop), slice(seen), hidden))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute q (B, H, Lq, D), k (B, Hkv, Lk, D) and v (B, Hkv, Lk, Dv) to (B, H, Lq, Dv)."""
        q, k, v = q * dot.scale, *(x.repeat_interleave(case.group, dim=1) for x in (k, v))
        outputs = []
        for queries, keys, hidden in blocks:
            scores = q[:, :, queries] @ k[:, :, keys].mT
            if hidden is not None:
                scores = scores.masked_fill(hidden, float("-inf"))
            wide = torch.promote_types(scores.dtype, torch.float32)
            outputs.append(torch.softmax(scores, dim=-1, dtype=wide).to(v.dtype) @ v[:, :, keys])
        return torch.cat(outputs, dim=2)

    return attend


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Yield the backend. The docstring of `attnbench.Backend` lists all that it can declare."""
    yield Backend(
        name="example",
        summary="blocks of queries on torch",
        prepare=prepare,
        supports=supports,
        rules=("scaled_dot",),
        passes=("forward", "backward", "both"),
    )
