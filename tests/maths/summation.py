"""Right attention with sums in a given order: what stands in for kernels and processors that are not here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from right_kernels import Kernel, repeated, scores_of, with_mask_and_sink
from torch import Tensor

from attnbench.types.backend import Setup

Sum = Callable[[Tensor], Tensor]
"""Sums (..., keys, features) over keys."""
Exp = Callable[[Tensor], Tensor]


def in_sequence(terms: Tensor) -> Tensor:
    total = torch.zeros_like(terms[..., 0, :])
    for term in terms.unbind(-2):
        total = total + term
    return total


def in_blocks(size: int, terms: Tensor) -> Tensor:
    """Blocks of keys in sequence, and their sums in sequence."""
    left = -terms.shape[-2] % size
    padded = torch.nn.functional.pad(terms, (0, 0, 0, left))
    return in_sequence(in_sequence(padded.unflatten(-2, (-1, size)).transpose(-2, -3)))


def in_pairs(terms: Tensor) -> Tensor:
    while terms.shape[-2] > 1:
        even = torch.nn.functional.pad(terms, (0, 0, 0, terms.shape[-2] % 2))
        terms = even[..., ::2, :] + even[..., 1::2, :]
    return terms[..., 0, :]


def exp_within(ulps: float, x: Tensor) -> Tensor:
    """exp with an error that swings between -ulps and ulps five times in each power of two."""
    part = torch.remainder(x.double() / math.log(2), 1).nan_to_num(0)
    eps = torch.finfo(x.dtype).eps
    return (x.double().exp() * (1 + ulps * eps / 2 * torch.sin(10 * math.pi * part))).to(x.dtype)


def added(sum_of: Sum, exp: Exp, setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Powers times values and powers, in one order; divided at the end."""
    scores, values = _scores_and_values(setup, q, k, v)
    top = _finite(scores.amax(-1, keepdim=True))
    total = sum_of(exp(scores - top)[..., None] * values[:, :, None])
    return (total[..., :-1] / total[..., -1:].masked_fill(total[..., -1:] == 0, 1)).to(q.dtype)


def merged(parts: int, setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Parts of the keys, each finished; merged by their log-sum-exps, as in flash decoding."""
    scores, values = _scores_and_values(setup, q, k, v)
    size = -(-scores.shape[-1] // parts)
    outs, sums = [], []
    for some, own in zip(scores.split(size, -1), values.split(size, 2), strict=True):
        top = _finite(some.amax(-1, keepdim=True))
        powers = (some - top).exp()
        total = powers.sum(-1, keepdim=True)
        outs.append(powers @ own[..., :-1] / total.masked_fill(total == 0, 1))
        sums.append(top + total.log())
    each = torch.stack(sums)
    shares = (each - _finite(each.logsumexp(0))).exp()
    return (shares * torch.stack(outs)).sum(0).to(q.dtype)


def _scores_and_values(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Scores with mask and sink, and values with a feature of ones; the sink's value is 0."""
    whole = slice(0, setup.case.Lk)
    scores = with_mask_and_sink(setup, scores_of(setup, q, repeated(setup, k), whole, scale_queries=True))
    values = repeated(setup, v).to(scores)
    values = torch.nn.functional.pad(values, (0, 0, 0, 1))
    return scores, torch.cat([values, torch.ones_like(values[..., :1])], -1)


def _finite(x: Tensor) -> Tensor:
    return x.masked_fill(x.isneginf(), 0)


ORDERS: dict[str, Kernel] = {
    "one after the other": partial(added, in_sequence, torch.exp),
    **{f"blocks of {n}": partial(added, partial(in_blocks, n), torch.exp) for n in (8, 32, 128, 1024)},
    "in pairs": partial(added, in_pairs, torch.exp),
    **{f"{n} parts merged": partial(merged, n) for n in (2, 8, 64)},
    "exp within 20 ulp": partial(added, partial(in_blocks, 16), partial(exp_within, 20)),
}
