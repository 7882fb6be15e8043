"""Backends that round the operands of their products, one that looks like these, and readers between rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from attnbench import Backend, Setup, hookimpl
from attnbench.kit.masks import softmax_mask

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]
    Rounding = Callable[[Tensor], Tensor]


def as_it_is(x: Tensor) -> Tensor:
    return x


def to_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


def to_int8(x: Tensor) -> Tensor:
    step = x.abs().amax(-1, keepdim=True) / 127
    return (x / step.masked_fill(step == 0, 1)).round() * step


def prepare(setup: Setup, rounded: Rounding, scale: float = 1.0) -> Call:
    import torch

    dot = setup.scoring.dot
    assert dot is not None
    added, empty = softmax_mask(setup, torch.float32)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (rounded(q) @ rounded(k).mT * (dot.scale * scale)).float()
        weights = (scores if added is None else scores + added).softmax(-1).to(q.dtype)
        out = rounded(weights) @ rounded(v)
        return out if empty is None else out.masked_fill(empty, 0)

    return attend


def reads_between_rows(setup: Setup) -> Call:
    """Adds 0 times a number behind each row but the last of queries that are not contiguous."""
    right = prepare(setup, as_it_is)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = right(q, k, v)
        if q.is_contiguous():
            return out
        shape = (*q.shape[:2], q.shape[2] - 1, 1)
        return out + 0 * q.as_strided(shape, q.stride(), q.storage_offset() + q.shape[3]).sum()

    return attend


def uses_between_rows(setup: Setup) -> Call:
    """Takes all queries for contiguous."""
    import torch

    right = prepare(setup, as_it_is)
    return lambda q, k, v: right(q.as_strided(q.shape, torch.empty(q.shape).stride()), k, v)


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    made = {
        "bfloat16_inside": partial(prepare, rounded=to_bfloat16),
        "bfloat16_declared": partial(prepare, rounded=to_bfloat16),
        "int8_declared": partial(prepare, rounded=to_int8),
        "int8_inside": partial(prepare, rounded=to_int8),
        "declared_and_wrong": partial(prepare, rounded=to_bfloat16, scale=1.2),
        "scale_off": partial(prepare, rounded=as_it_is, scale=1.005),
        "reads_between_rows": reads_between_rows,
        "uses_between_rows": uses_between_rows,
    }
    arithmetics = {"declared_and_wrong": "bfloat16", "bfloat16_declared": "bfloat16", "int8_declared": "int8"}
    for name, prepares in made.items():
        yield Backend(
            name, "test data", prepare=prepares, rules=("scaled_dot",), computes_in=arithmetics.get(name),
            supports=lambda case, rule: None if case.group == 1 else "no groups",
            passes=("forward", "backward", "both") if name.startswith("bfloat16") else ("forward",),
        )  # fmt: skip
