"""Kernels as honest authors err: each wrong in one way, which its diagnosis must name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def parts(setup: Any, q: Tensor, k: Tensor) -> Tensor:
    """The masked scores; k has all heads."""
    scores = q @ k.mT * setup.scoring.dot.scale
    keep = keep_mask(setup.case, "cpu")
    return scores if keep is None else scores.masked_fill(~keep, -torch.inf)


def spread(setup: Any, x: Tensor) -> Tensor:
    return x.repeat_interleave(setup.case.group, 1)


def weights(scores: Tensor) -> Tensor:
    return scores.softmax(-1).nan_to_num(0)


def kernel(form: Callable[[Any, Tensor, Tensor], Tensor]) -> Callable[[Any], Attend]:
    """A backend whose output follows from masked scores and values."""

    def prepare(setup: Any) -> Attend:
        return lambda q, k, v: form(setup, parts(setup, q, spread(setup, k)), spread(setup, v))

    prepare.__name__ = form.__name__
    return prepare


@kernel
def not_rescaled(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    top = torch.full_like(scores[..., :1], -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(*scores.shape[:-1], v.shape[-1])
    for part, values in zip(scores.split(32, -1), v.split(32, 2), strict=True):
        risen = torch.maximum(top, part.amax(-1, keepdim=True))
        shift = risen.masked_fill(risen.isneginf(), 0)
        powers = (part - shift).exp()
        total = total * (top - shift).exp() + powers.sum(-1, keepdim=True)
        out, top = out + powers @ values, risen
    return out / total.masked_fill(total == 0, 1)


def sums_in_its_dtype(setup: Any) -> Attend:
    """Accumulate in the dtype of the case, as ``zeros_like`` makes it."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = spread(setup, k), spread(setup, v)
        scores = parts(setup, q.float(), keys.float())
        top = torch.full_like(scores[..., :1], -torch.inf)
        out = torch.zeros_like(q[..., :1] @ values[..., :1, :])
        total = torch.zeros_like(q[..., :1])
        for part, of_part in zip(scores.split(64, -1), values.split(64, 2), strict=True):
            risen = torch.maximum(top, part.amax(-1, keepdim=True))
            shift = risen.masked_fill(risen.isneginf(), 0)
            powers, shrink = (part - shift).exp(), (top - shift).exp().to(q.dtype)
            total = total * shrink + powers.sum(-1, keepdim=True).to(q.dtype)
            out, top = out * shrink + powers.to(q.dtype) @ of_part, risen
        return out / total.masked_fill(total == 0, 1)

    return attend


def each_second_call(setup: Any) -> Attend:
    calls = [0]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        calls[0] += 1
        out = weights(parts(setup, q, spread(setup, k))) @ spread(setup, v)
        return out * 1.1 if calls[0] % 2 else out

    return attend


@kernel
def clamped(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    return weights(scores.clamp(-30, 30).masked_fill(scores.isneginf(), -torch.inf)) @ v


@kernel
def block_boundary(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    """The 65th key is read twice, where nothing is masked."""
    if setup.case.mask.is_none and setup.case.Lk > 64:
        scores, v = torch.cat((scores, scores[..., 64:65]), -1), torch.cat((v, v[:, :, 64:65]), 2)
    return weights(scores) @ v


@kernel
def gives_nan(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    return weights(scores) @ v * torch.nan


@kernel
def nan_of_large_scores(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    out = weights(scores) @ v
    return out * torch.nan if scores.nan_to_num(0, neginf=0).abs().max() > 200 else out


@kernel
def gives_zeros(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    return weights(scores) @ v * 0


@kernel
def causal_off_by_one(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    mask, Lq, Lk = setup.case.mask, setup.case.Lq, setup.case.Lk
    if mask.causal:
        rows, keys = torch.arange(Lq)[:, None] + setup.case.query_offset, torch.arange(Lk)
        scores = scores.masked_fill(keys >= rows, -torch.inf)
    return weights(scores) @ v


def causal_window_ignored(setup: Any) -> Attend:
    mask = setup.case.mask
    plain = mask.causal is not None and mask.window is not None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        products = q @ spread(setup, k).mT * setup.scoring.dot.scale
        scores = products if plain else parts(setup, q, spread(setup, k))
        return weights(scores) @ spread(setup, v)

    return attend


def adds(number: float) -> Callable[[Any], Attend]:
    """Return a kernel that adds a number to the scores of dropped keys, instead of -inf."""

    def prepare(setup: Any) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys = spread(setup, k)
            dropped = parts(setup, q, keys).isneginf()
            products = q @ keys.mT * setup.scoring.dot.scale
            return (products + dropped * number).softmax(-1) @ spread(setup, v)

        return attend

    prepare.__name__ = f"adds_minus_{-number}"
    return prepare


@kernel
def lets_the_next_key_weigh(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    """Only the key after the last one that is kept has some weight."""
    finite = scores.isfinite()
    following = ~finite & finite.roll(1, -1)
    return weights(scores.masked_fill(following, -6)) @ v


@kernel
def fills_in_minus_5(setup: Any, scores: Tensor, v: Tensor) -> Tensor:
    return scores.masked_fill(scores.isneginf(), -5).softmax(-1) @ v


def as_contiguous(setup: Any) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        read = [x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset()) for x in (q, k, v)]
        scores = parts(setup, read[0], spread(setup, read[1]))
        return weights(scores) @ spread(setup, read[2])

    return attend


PREPARES = (
    not_rescaled, each_second_call, clamped, block_boundary, gives_nan, nan_of_large_scores, gives_zeros,
    causal_off_by_one, causal_window_ignored, as_contiguous, adds(-10), adds(-100), fills_in_minus_5,
    lets_the_next_key_weigh, sums_in_its_dtype,
)  # fmt: skip


@hookimpl
def attnbench_backends() -> list[Backend]:
    return [
        Backend(
            prepare.__name__, "a habit", prepare, rules=("scaled_dot",),
            dtypes=("float32", "bfloat16", "float16"),
            supports=lambda case, rule: "plain masks only" if case.mask.explicit or case.layer else None,
        )
        for prepare in PREPARES
    ]  # fmt: skip
