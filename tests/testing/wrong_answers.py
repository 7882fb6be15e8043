"""Backends whose answers are diagnosed: each makes one mistake, on any case."""

from __future__ import annotations

from typing import Any

import torch
from wrong_first_tries import PREPARES as FIRST_TRIES
from wrong_first_tries import right

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask


def tiles_heads(setup: Any) -> Any:
    group = setup.case.group
    return lambda q, k, v: right(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1))


def other_corner(setup: Any) -> Any:
    keep = torch.ones(setup.case.Lq, setup.case.Lk, dtype=torch.bool).tril()
    return lambda q, k, v: right(q, k, v, keep=keep)


def nan_rows(setup: Any) -> Any:
    keep = keep_mask(setup.case, "cpu")
    return lambda q, k, v: right(q, k, v, keep=keep)


def inverted(setup: Any) -> Any:
    keep = keep_mask(setup.case, "cpu")
    return lambda q, k, v: right(q, k, v, keep=~keep).nan_to_num(0)


def over_queries(setup: Any) -> Any:
    return lambda q, k, v: (q @ k.mT * setup.case.D**-0.5).softmax(-2) @ v


def viewed(setup: Any) -> Any:
    def call(q: Any, k: Any, v: Any) -> Any:
        out = right(q, k, v)
        return out.transpose(1, 2).reshape(out.shape)

    return call


def other_layout(setup: Any) -> Any:
    """Without the scale, on inputs and output of (B, L, H, D)."""
    return lambda q, k, v: right(*(x.transpose(1, 2) for x in (q, k, v)), scale=1.0).transpose(1, 2)


def odd_row(setup: Any) -> Any:
    def call(q: Any, k: Any, v: Any) -> Any:
        out = right(q, k, v)
        out[:, :, 3] *= 1.7
        return out

    return call


def odd_gradient(setup: Any) -> Any:
    return lambda q, k, v: right(q, k, v.detach() + 1.7 * (v - v.detach()))


def no_gradient_scale(setup: Any) -> Any:
    root = setup.case.D**0.5
    return lambda q, k, v: right(q.detach() + root * (q - q.detach()), k, v)


def float_16(setup: Any) -> Any:
    return lambda q, k, v: (q @ k.mT * setup.case.D**-0.5).half().softmax(-1).float() @ v


@hookimpl
def attnbench_backends() -> list[Backend]:
    return [
        Backend(
            prepare.__name__, "a first try", prepare, rules=("scaled_dot",), passes=("forward", "both"),
            layout="BLHD" if prepare is other_layout else "BHLD",
        )
        for prepare in (
            *FIRST_TRIES, tiles_heads, other_corner, nan_rows, inverted, over_queries, viewed, other_layout,
            odd_row, odd_gradient, no_gradient_scale, float_16,
        )
    ]  # fmt: skip
