"""Attention with one mistake each, of the right kernels' pieces: what stress inputs should show."""

from __future__ import annotations

from collections.abc import Callable

import torch
from right_kernels import Kernel, repeated, scores_of, with_mask_and_sink
from torch import Tensor

from attnbench.types.backend import Setup


def attend(
    setup: Setup,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scores: Callable[[Tensor], Tensor] = lambda scores: scores,
    weights: Callable[[Tensor], Tensor] = lambda weights: weights,
) -> Tensor:
    """The plain way, with scores (before the mask) or weights changed."""
    raw = scores(scores_of(setup, q, repeated(setup, k), slice(0, setup.case.Lk), scale_queries=False))
    found = with_mask_and_sink(setup, raw).softmax(-1).nan_to_num(0)[..., :-1]
    return weights(found).to(q.dtype) @ repeated(setup, v)


def scale_off(by: float) -> Kernel:
    return lambda setup, q, k, v: attend(setup, q, k, v, scores=lambda scores: scores.float() * (1 + by))


def score_lost(key: Callable[[int], slice]) -> Kernel:
    """Keys that never come into the softmax."""

    def lose(scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[..., key(scores.shape[-1])] = -torch.inf
        return scores

    return lambda setup, q, k, v: attend(setup, q, k, v, scores=lose)


def weight_lost(key: Callable[[int], slice]) -> Kernel:
    """Keys that are in the sum of the softmax and have no value added."""

    def lose(weights: Tensor) -> Tensor:
        weights = weights.clone()
        weights[..., key(weights.shape[-1])] = 0
        return weights

    return lambda setup, q, k, v: attend(setup, q, k, v, weights=lose)


def without_maximum(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = scores_of(setup, q, repeated(setup, k), slice(0, setup.case.Lk), scale_queries=False)
    powers = with_mask_and_sink(setup, raw).exp()
    total = powers.sum(-1, keepdim=True)
    weights = powers / total.masked_fill(total == 0, 1)
    return weights[..., :-1].to(q.dtype) @ repeated(setup, v)


def scores_kept_below(most: float) -> Kernel:
    """No maximum taken away, but nothing overflows either."""
    return lambda setup, q, k, v: attend(setup, q, k, v, scores=lambda scores: scores.clamp(-most, most))


def one_element(factor: float) -> Kernel:
    """The largest element of all is wrong."""

    def kernel(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attend(setup, q, k, v).clone()
        flat = out.view(-1)
        flat[flat.float().abs().argmax()] *= factor
        return out

    return kernel


WRONG: dict[str, Kernel] = {
    "scale 10 % off": scale_off(0.1),
    "scale 1 % off": scale_off(0.01),
    "scale -1 % off": scale_off(-0.01),
    "scale 0.1 % off": scale_off(0.001),
    "first key lost": score_lost(lambda n: slice(0, 1)),
    "last key lost": score_lost(lambda n: slice(n - 1, n)),
    "a far key lost": score_lost(lambda n: slice(n // 2, n // 2 + 1)),
    "last hundredth lost": score_lost(lambda n: slice(n - max(1, n // 100), n)),
    "last quarter lost": score_lost(lambda n: slice(n - max(1, n // 4), n)),
    "last value lost": weight_lost(lambda n: slice(n - 1, n)),
    "no maximum": without_maximum,
    "scores within 30": scores_kept_below(30),
    "one element wrong": one_element(1.5),
}
