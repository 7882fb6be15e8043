"""selected_gather: the chosen keys copied together, then attention; selected_mask: a mask of those chosen.

select_topk: the choice itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.backends.sdpa import call_with, mask_dtype, refuse_cap
from attnbench.kit.choice import prepare_choice
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.encodings import dequantiser
from attnbench.kit.masks import additive_mask
from attnbench.kit.scores import form_of, map_keys, map_queries, soft_cap
from attnbench.kit.selection import Sequences, chosen_keys, key_places
from attnbench.types.backend import Backend, Setup
from attnbench.types.encoding import is_encoded

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.kit.selection import Make
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

ELEMENTS_AT_ONCE = 1 << 24
"""Elements of gathered keys and values that are held at once."""


def prepare_gather(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of q, k, v and indices that reads the chosen keys alone."""
    import torch

    case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
    assert dot is not None
    # Values that are the first features of keys are copied with them.
    shared = is_encoded(case) and dot.map_k is None
    wide = softmax_dtype(case_dtype(case))
    mask = additive_mask(case, wide, case.device, setup.scoring)
    places = case.size("top") * case.size("block")
    at_once = max(1, ELEMENTS_AT_ONCE // max(1, case.B * case.H * places * (case.D + case.Dv)))

    def rows_of(q: Tensor, k: Tensor, v: Tensor, indices: Tensor, rows: slice) -> Tensor:
        keys, valid = key_places(case, indices[:, :, rows])
        if k.shape[1] != v.shape[1]:  # A rule maps keys for each query head.
            keys, valid, v = (x.repeat_interleave(case.group, dim=1) for x in (keys, valid, v))
        B, G, R, _ = keys.shape
        batch = torch.arange(B, device=q.device)[:, None, None, None]
        heads = torch.arange(G, device=q.device)[:, None, None]
        own = k[batch, heads, keys]
        values = own[..., : case.Dv] if shared else v[batch, heads, keys]
        queries = torch.unflatten(q[:, :, rows], 1, (G, -1))
        scores = soft_cap(dot, torch.einsum("bgnrd,bgrsd->bgnrs", queries, own) * dot.scale).to(wide)
        if mask is not None:
            by_head = torch.unflatten(mask[..., rows, :].expand(B, case.H, R, case.Lk), 1, (G, -1))
            scores = scores + by_head.gather(-1, keys[:, :, None].expand_as(scores))
        scores = scores.masked_fill(~valid[:, :, None], -torch.inf)
        if sink is not None:
            column = sink.to(wide).view(1, G, -1, 1, 1).expand(*scores.shape[:-1], 1)
            weights = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
        else:
            empty = scores.isneginf().all(-1, keepdim=True)
            weights = scores.softmax(-1).masked_fill(empty, 0)
        return torch.einsum("bgnrs,bgrse->bgnre", weights.to(v.dtype), values).flatten(1, 2)

    def call(q: Tensor, k: Tensor, v: Tensor, indices: Tensor) -> Tensor:
        q, k = map_queries(dot, q), map_keys(dot, k)
        starts = range(0, case.Lq, at_once)
        rows = (slice(start, min(start + at_once, case.Lq)) for start in starts)
        return torch.cat([rows_of(q, k, v, indices, one) for one in rows], dim=2)

    return call


def prepare_mask(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of q, k, v and indices that makes a mask of those chosen for torch's attention."""
    import torch

    case, dtype = setup.case, mask_dtype(setup.case)
    mask = additive_mask(case, dtype, case.device, setup.scoring)

    def call(q: Tensor, k: Tensor, v: Tensor, indices: Tensor) -> Tensor:
        chosen = chosen_keys(case, indices).repeat_interleave(case.group, dim=1)
        added = torch.zeros((), dtype=dtype, device=q.device) if mask is None else mask
        added = added.masked_fill(~chosen, -torch.inf)
        empty = added.isneginf().all(-1, keepdim=True)
        # A softmax over -inf alone is NaN.
        return call_with(setup, added.masked_fill(empty, 0), False)(q, k, v).masked_fill(empty, 0)

    return call


def _with(make: Make) -> Callable[[Setup], Callable[..., Tensor]]:
    """Return a function that prepares batches and latent heads too."""

    def of_sequence(setup: Setup) -> Callable[..., Tensor]:
        call = make(setup)
        if not is_encoded(setup.case):
            return call
        read = dequantiser(setup.case)
        return lambda q, indices, *held: call(q, *read(*held), indices)

    return lambda setup: Sequences(setup, of_sequence, 0) if setup.case.batch else of_sequence(setup)


def _refuse(case: Case, rule: Rule) -> str | None:
    if form_of(case, rule).sink is not None:
        return "has no sink: its mask has a column for each key"
    return refuse_cap(case, rule)


SELECTED_GATHER = Backend(
    name="selected_gather",
    summary="the chosen keys copied together for each query, then matmul, softmax, matmul",
    prepare=_with(prepare_gather),
    operations=("selected",),
    storages=("dense", "packed", "paged"),
    encodings=("dtype", "latent"),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)

SELECTED_MASK = Backend(
    name="selected_mask",
    summary="a mask of the chosen keys, then torch SDPA over all keys",
    prepare=_with(prepare_mask),
    supports=_refuse,
    operations=("selected",),
    storages=("dense", "packed", "paged"),
    encodings=("dtype", "latent"),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)

SELECT_TOPK = Backend(
    name="select_topk",
    summary="scores of all keys or blocks, then torch.topk",
    prepare=lambda setup: Sequences(setup, prepare_choice, -1) if setup.case.batch else prepare_choice(setup),
    operations=("select", "select_mean", "select_largest", "select_compressed"),
    storages=("dense", "packed", "paged"),
    masks=("any",),
    masks_by_head=True,
)
