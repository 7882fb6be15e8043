"""The plain reference: matmul, softmax, matmul in the dtype of the case. Its errors set the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnbench.kit.layer import for_operation
from attnbench.kit.scores import scores_of
from attnbench.masks import added_rows, keep_rows
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call, Weigh


SCORES_AT_ONCE = 1 << 24


def prepare(setup: Setup, held: bool = False) -> Call:
    """Return the function of the plain reference.

    held: treat the softmax's denominators as constants, through which no gradient flows. The output is the
    same; gradients are those before the part of the denominators is subtracted.
    """
    return for_operation(partial(_attend, setup, held=held), setup)


def _attend(setup: Setup, q: Tensor, k: Tensor, v: Tensor, held: bool) -> Tensor:
    import torch
    from torch.utils.checkpoint import checkpoint

    case = setup.case
    if case.pass_ != "forward":
        # Tensors that binding computes from parameters must belong to the graph of this call.
        setup = replace(setup, scoring=setup.rule.bind(case, setup.rule_parameters))
    k, v = (x.repeat_interleave(case.group, dim=1) for x in (k, v))
    by_row = case.B * case.H * case.Lk * setup.rule.score_elements(case)
    at_once = max(1, SCORES_AT_ONCE // by_row)
    attend: Callable[..., Tensor] = _attend_rows
    if case.pass_ != "forward" and at_once < case.Lq:
        # Keep no scores for the backward pass; it computes them again.
        attend = partial(checkpoint, _attend_rows, use_reentrant=False, preserve_rng_state=False)
    starts = range(0, case.Lq, at_once)
    chunks = [attend(setup, slice(i, min(i + at_once, case.Lq)), q, k, v, held) for i in starts]
    return torch.cat(chunks, dim=2)


def weights(setup: Setup) -> Weigh:
    """Return the function of its attention weights: of q and k, (B, H, Lq, Lk) in their dtype."""
    rows = slice(0, setup.case.Lq)

    def weigh(q: Tensor, k: Tensor) -> Tensor:
        k = k.repeat_interleave(setup.case.group, dim=1)
        scores = _scores(setup, q, k).to(_softmax_dtype(setup))
        return _weights(setup, scores, rows, False).to(q.dtype)

    return weigh


def _attend_rows(setup: Setup, rows: slice, q: Tensor, k: Tensor, v: Tensor, held: bool) -> Tensor:
    keys = k[:, :, rows] if setup.rule.pairs_keys else k
    scores = _scores(setup, q[:, :, rows], keys).to(_softmax_dtype(setup))
    return _weights(setup, scores, rows, held).to(q.dtype) @ v


def _scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return scores_of(setup.scoring, scale_queries=False)(q, k, slice(0, setup.case.Lk))


def _weights(setup: Setup, scores: Tensor, rows: slice, held: bool) -> Tensor:
    """Apply bias, mask and softmax to scores (B, H, R, Lk) in the dtype of the softmax."""
    import torch

    case, scoring = setup.case, setup.scoring
    if scoring.bias is not None:
        scores = scores + scoring.bias(rows, slice(0, case.Lk))
    numbers = np.arange(rows.start, rows.stop)
    added, keep = added_rows(case, numbers), keep_rows(case, numbers)
    if added is not None:
        scores = scores + torch.from_numpy(added).to(scores)
    if keep is not None:
        scores = scores.masked_fill(~torch.from_numpy(keep).to(scores.device), -torch.inf)
    if scoring.sink is not None:
        sink = scoring.sink.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
        return _softmax(torch.cat([scores, sink], dim=-1), held)[..., :-1]
    empty = scores.isneginf().all(dim=-1, keepdim=True)
    return _softmax(scores, held).masked_fill(empty, 0)


def _softmax(scores: Tensor, held: bool) -> Tensor:
    if not held:
        return scores.softmax(dim=-1)
    largest = scores.detach().amax(dim=-1, keepdim=True)
    powers = (scores - largest.masked_fill(largest.isneginf(), 0)).exp()
    total = powers.detach().sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


def _softmax_dtype(setup: Setup) -> torch.dtype:
    import torch

    return torch.float64 if setup.case.dtype == "float64" else torch.float32


PLAIN = Backend(
    name="plain",
    summary="matmul, softmax in float32, matmul: what errors are measured by",
    prepare=prepare,
    operations=("attention", "multihead"),
    passes=PASSES,
    weights=weights,
)
