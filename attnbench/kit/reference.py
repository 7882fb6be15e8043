"""The plain reference: matmul, softmax, matmul in the dtype of the case. Its errors set the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from attnbench.kit.layer import for_operation
from attnbench.kit.problems import problem_setups
from attnbench.kit.scores import map_keys, map_queries, scores_of
from attnbench.masks import added_rows, keep_rows
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench.types.operation import operation_of
from attnbench.types.rule import DotForm

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
    attend = for_operation(partial(_attend, setup, held=held), setup)
    if "lse" not in setup.case.returns:
        return attend

    def with_log_sums(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return attend(q, k, v), _log_sums(setup, q.detach(), k.detach())

    return cast("Call", with_log_sums)


def prepare_apart(setup: Setup) -> Call:
    """Return the function of the plain reference for a batch, whose inputs come apart.

    It takes one q for each sequence, then one k, then one v, or the other inputs of an operation so, and
    returns all outputs in the same order.
    """
    alone, case = problem_setups(setup), setup.case
    plain = operation_of(case).reference or prepare
    # In the order of the problems, which ask for no further outputs by themselves.
    calls = [plain(replace(one, case=replace(one.case, returns=case.returns))) for one in alone]

    def call(*inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        by_problem = (inputs[number :: len(calls)] for number in range(len(calls)))
        answers = [one(*own) for one, own in zip(calls, by_problem, strict=True)]
        if len(operation_of(case).outputs(case)) == 1:
            # One tensor alone is no tuple, as of any call.
            return tuple(answers) if len(answers) > 1 else answers[0]
        return tuple(part for parts in zip(*answers, strict=True) for part in parts)

    return cast("Call", call)


def _log_sums(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """Return the logarithm of each row's sum of exp(score), (B, H, Lq), without a sink.

    An empty row has -inf. It has no gradient. Kernels get the maps and the bias of a rule in the dtype of the
    case, so these are rounded to it here too. Products of half precision are in float32.
    """
    import torch

    case, scoring, wide = setup.case, setup.scoring, wide_dtype(setup)
    k = k.repeat_interleave(case.group, dim=1)
    found = []
    with torch.no_grad():
        if scoring.dot is not None:
            q, k = map_queries(scoring.dot, q).to(wide), map_keys(scoring.dot, k).to(wide)
            own = DotForm(scoring.dot.scale, cap=scoring.dot.cap)
            setup = replace(setup, scoring=replace(scoring, dot=own))
        for rows in row_chunks(setup):
            keys = k[:, :, rows] if setup.rule.pairs_keys else k
            scores = masked(setup, row_scores(setup, q[:, :, rows], keys).to(wide), rows)
            found.append(scores.logsumexp(-1))
    return torch.cat(found, dim=2)


def _attend(setup: Setup, q: Tensor, k: Tensor, v: Tensor, held: bool) -> Tensor:
    import torch
    from torch.utils.checkpoint import checkpoint

    case = setup.case
    if case.pass_ != "forward":
        # Tensors that binding computes from parameters must belong to the graph of this call.
        setup = replace(setup, scoring=setup.rule.bind(case, setup.rule_parameters))
    k, v = (x.repeat_interleave(case.group, dim=1) for x in (k, v))
    chunks = row_chunks(setup)
    attend: Callable[..., Tensor] = _attend_rows
    if case.pass_ != "forward" and len(chunks) > 1:
        # Keep no scores for the backward pass; it computes them again.
        attend = partial(checkpoint, _attend_rows, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([attend(setup, rows, q, k, v, held) for rows in chunks], dim=2)


def row_chunks(setup: Setup) -> list[slice]:
    """Return ranges of query rows whose scores are made at once; one range where there is no row."""
    case = setup.case
    by_row = case.B * case.H * case.Lk * setup.rule.score_elements(case)
    at_once = max(1, SCORES_AT_ONCE // max(1, by_row))
    return [slice(i, min(i + at_once, case.Lq)) for i in range(0, max(1, case.Lq), at_once)]


def weights(setup: Setup) -> Weigh:
    """Return the function of its attention weights: of q and k, (B, H, Lq, Lk) in their dtype."""
    rows = slice(0, setup.case.Lq)

    def weigh(q: Tensor, k: Tensor) -> Tensor:
        k = k.repeat_interleave(setup.case.group, dim=1)
        scores = row_scores(setup, q, k).to(wide_dtype(setup))
        return row_weights(setup, scores, rows, False).to(q.dtype)

    return weigh


def _attend_rows(setup: Setup, rows: slice, q: Tensor, k: Tensor, v: Tensor, held: bool) -> Tensor:
    keys = k[:, :, rows] if setup.rule.pairs_keys else k
    scores = row_scores(setup, q[:, :, rows], keys).to(wide_dtype(setup))
    return row_weights(setup, scores, rows, held).to(q.dtype) @ v


def row_scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """Return the scores (B, H, R, Lk) of some query rows, without bias and mask."""
    return scores_of(setup.scoring, scale_queries=False)(q, k, slice(0, setup.case.Lk))


def row_weights(setup: Setup, scores: Tensor, rows: slice, held: bool) -> Tensor:
    """Apply bias, mask and softmax to scores (B, H, R, Lk) in the dtype of the softmax."""
    import torch

    scoring = setup.scoring
    if setup.case.Lk == 0:
        return scores
    scores = masked(setup, scores, rows)
    if scoring.sink is not None:
        sink = scoring.sink.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
        return _softmax(torch.cat([scores, sink], dim=-1), held)[..., :-1]
    empty = scores.isneginf().all(dim=-1, keepdim=True)
    return _softmax(scores, held).masked_fill(empty, 0)


def masked(setup: Setup, scores: Tensor, rows: slice) -> Tensor:
    """Apply bias and mask to scores."""
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
    return scores


def _softmax(scores: Tensor, held: bool) -> Tensor:
    if not held:
        return scores.softmax(dim=-1)
    largest = scores.detach().amax(dim=-1, keepdim=True)
    powers = (scores - largest.masked_fill(largest.isneginf(), 0)).exp()
    total = powers.detach().sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


def wide_dtype(setup: Setup) -> torch.dtype:
    """Return the dtype of the softmax: float64 where the case is, else float32."""
    import torch

    return torch.float64 if setup.case.dtype == "float64" else torch.float32


PLAIN = Backend(
    name="plain",
    summary="matmul, softmax in float32, matmul: what errors are measured by",
    prepare=prepare,
    operations=("attention", "multihead"),
    passes=PASSES,
    returns=("lse",),
    weights=weights,
)

PLAIN_APART = replace(PLAIN, prepare=prepare_apart, storages=("apart",), returns=("lse",), weights=None)
"""The same for a batch."""
