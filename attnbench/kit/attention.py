"""Attention as most people write it, and its pieces: softmax, dropout on the weights, sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import matmul_shared
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import derived, scores_of
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Weigh
    from attnbench.types.case import Case

    LogSums = Callable[[Tensor, Tensor], Tensor]
    Softmax = Callable[[Tensor, Tensor | None, Tensor | None, Tensor | None], Tensor]


def attention(setup: Setup, scale_queries: bool = True) -> Call:
    """Make the function of ``attention``: scores, softmax (float32 for half precision), weighted values.

    It takes q (B, H, Lq, D), k (B, Hkv, Lk, D) and v (B, Hkv, Lk, Dv) and gives (B, H, Lq, Dv), in the
    case's dtype. scale_queries: see :func:`attnbench.kit.scores.scores_of`.
    """
    case = setup.case
    dtype = softmax_dtype(case_dtype(case))
    mask, empty = softmax_mask(setup, dtype)
    queries, keys = slice(0, case.Lq), slice(0, case.Lk)
    softmax = softmax_of(case)

    def made(setup: Setup) -> Call:
        scores = scores_of(setup.scoring, scale_queries)
        sink = setup.scoring.sink
        added = plus_bias(mask, setup.scoring, queries, keys, dtype)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return matmul_shared(softmax(scores(q, k, keys), added, empty, sink), v)

        return attend

    return derived(setup, made)


def weights(setup: Setup, scale_queries: bool = True) -> Weigh:
    """Make the function of q and k that gives the weights of :func:`attention`, (B, H, Lq, Lk)."""
    case = setup.case
    dtype = softmax_dtype(case_dtype(case))
    mask, empty = softmax_mask(setup, dtype)
    queries, keys = slice(0, case.Lq), slice(0, case.Lk)
    scores = scores_of(setup.scoring, scale_queries)
    added = plus_bias(mask, setup.scoring, queries, keys, dtype)
    softmax = softmax_of(case)

    def weigh(q: Tensor, k: Tensor) -> Tensor:
        return softmax(scores(q, k, keys), added, empty, setup.scoring.sink)

    return weigh


def _in_float32(setup: Setup) -> Setup:
    """Return the setup of a case in half precision as one in float32, with the same numbers."""
    case = setup.case
    if case.dtype in ("float32", "float64"):
        return setup
    own = {name: x.detach().float() for name, x in setup.rule_parameters.items()}
    wide = replace(case, dtype="float32")
    return Setup(wide, setup.rule, setup.rule.bind(wide, own), own, setup.projections)


def log_sums(setup: Setup, added: Tensor | None) -> LogSums:
    """Make the function of q and k that gives the logarithm of each row's sum of exp(score), (B, H, Lq).

    It is computed in float32 for half precision, products too, and has no gradient. A sink is not in it; a
    row without keys has -inf. added: mask and bias, as for :func:`masked_softmax`.
    """
    wide = _in_float32(setup)
    dtype = case_dtype(wide.case)
    scores, keys = scores_of(wide.scoring), slice(0, setup.case.Lk)
    added = None if added is None else added.detach().to(dtype)

    def sums(q: Tensor, k: Tensor) -> Tensor:
        found = scores(q.detach().to(dtype), k.detach().to(dtype), keys)
        return (found if added is None else found + added).logsumexp(-1)

    return sums


def masked_softmax(
    scores: Tensor, added: Tensor | None = None, empty: Tensor | None = None, sink: Tensor | None = None
) -> Tensor:
    """Compute the weights over the keys, (B, H, rows, cols), in the dtype of the scores.

    added: mask and bias, from :func:`attnbench.kit.masks.additive_mask`, best in the dtype that
    :func:`attnbench.kit.dtypes.softmax_dtype` gives. empty: rows that keep no key, from
    :func:`attnbench.kit.masks.empty_rows`: their weights are exactly 0. sink: (H,) logits, one more
    column for each head, whose weight is left out of the result.
    """
    import torch

    dtype = scores.dtype
    scores = scores.to(softmax_dtype(dtype))
    if added is not None:
        scores = scores + added
    if sink is None:
        weights = torch.softmax(scores, dim=-1)
        if empty is not None:
            weights = weights.masked_fill(empty, 0)
        return weights.to(dtype)
    # A row that keeps no key gives all its weight to the sink, so ``empty`` isn't needed.
    column = sink.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1].to(dtype)


def softmax_of(case: Case) -> Softmax:
    """:func:`masked_softmax`, followed by dropout in a case that has it.

    Each weight is 0 with probability p; the others are divided by 1 - p. Every call draws anew, from torch's
    own generator. The weight of a sink is never dropped, since the result leaves it out.
    """
    if not case.dropout:
        return masked_softmax
    from torch.nn.functional import dropout

    p = case.dropout

    def dropping(scores: Tensor, added: Tensor | None, empty: Tensor | None, sink: Tensor | None) -> Tensor:
        return dropout(masked_softmax(scores, added, empty, sink), p)

    return dropping


def with_zero_row(x: Tensor) -> Tensor:
    """Append a row of zeros to keys or values, for a sink: (B, Hkv, L, D) to (B, Hkv, L + 1, D).

    For kernels without sinks. The product with a zero key is 0, so the mask alone gives that key its score,
    the sink's logit; its zero value adds nothing to the output. Source: Xiao et al. 2023, Efficient Streaming
    Language Models with Attention Sinks, section 3.3 (zero sink, with a logit).
    """
    from torch.nn.functional import pad

    return pad(x, (0, 0, 0, 1))


def with_sink_column(added: Tensor | None, sink: Tensor, case: Case) -> Tensor:
    """Append the sink's column to the additive mask: (B or 1, H, Lq, Lk + 1), in the dtype of ``added``.

    For :func:`with_zero_row`. Without ``added`` the result has the dtype of the sink.
    """
    import torch

    if added is None:
        added = torch.zeros(1, 1, case.Lq, case.Lk, dtype=sink.dtype, device=sink.device)
    added = added.expand(added.shape[0], case.H, case.Lq, case.Lk)
    column = sink.to(added.dtype).view(1, -1, 1, 1).expand(added.shape[0], case.H, case.Lq, 1)
    return torch.cat((added, column), dim=-1)
