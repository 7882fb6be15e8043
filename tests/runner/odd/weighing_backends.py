"""Backends whose attention weights are wrong, or whose inputs must be ordinary, or that ignore constants.

And some that round the operands of their products, one that looks like these, and readers between rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench import Backend, hookimpl
from attnbench.kit.attention import attention, weights
from attnbench.kit.masks import softmax_mask
from attnbench.masks import kept_keys

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench import Setup

    Weigh = Callable[[Tensor, Tensor], Tensor]
    Call = Callable[[Tensor, Tensor, Tensor], Tensor]
    Rounding = Callable[[Tensor], Tensor]


def changed(change: Callable[[Tensor], Tensor]) -> Callable[[Setup], Weigh]:
    def prepare(setup: Setup) -> Weigh:
        weigh = weights(setup)
        return lambda q, k: change(weigh(q, k))

    return prepare


def raising(setup: Setup) -> Weigh:
    raise ValueError("no weights today")


def when_contiguous(setup: Setup) -> Callable[..., Tensor]:
    attend = attention(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not all(x.is_contiguous() for x in (q, k, v)):
            raise ValueError("not contiguous")
        return attend(q, k, v)

    return call


def as_contiguous(setup: Setup) -> Callable[..., Tensor]:
    """Read memory on from the first element, whatever the strides: right for contiguous inputs alone."""
    attend = attention(setup)

    def plain(x: Tensor) -> Tensor:
        strides = x.new_empty(x.shape, device="meta").stride()
        room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        return x.as_strided(x.shape, strides) if x.numel() <= room else x

    return lambda q, k, v: attend(plain(q), plain(k), plain(v))


def features_together(setup: Setup, raises: bool) -> Callable[..., Tensor]:
    """Take the features of a key for neighbours in memory, or raise where they are not."""
    attend = attention(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if raises and k.stride(-1) != 1:
            raise ValueError("give features that lie together")
        return attend(q, k.as_strided(k.shape, (*k.stride()[:3], 1)), v)

    return call


def base_of_keys(setup: Setup) -> Callable[..., Tensor]:
    """Read values where the memory of keys begins, if both lie in it."""
    attend = attention(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        together = k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
        return attend(q, k, v.as_strided(v.shape, v.stride(), k.storage_offset()) if together else v)

    return call


def when_not_graded(setup: Setup) -> Callable[..., Tensor]:
    attend = attention(setup)
    return lambda q, k, v: attend(q, k, v * (2 if q.requires_grad else 1))


def value_of_one_key(setup: Setup) -> Callable[..., Tensor]:
    """An input as it is where it is the answer."""
    attend = attention(setup)
    return lambda q, k, v: v if setup.case.Lk == 1 else attend(q, k, v)


def keeps_a_mebibyte(setup: Setup) -> Callable[..., Tensor]:
    attend, kept = attention(setup), list[bytes]()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept.append(b"1" * 1024**2)
        return attend(q, k, v)

    return call


def clears_dropped(setup: Setup) -> Callable[..., Tensor]:
    import torch

    attend, dropped = attention(setup), torch.from_numpy(~kept_keys(setup.case))[..., None]
    return lambda q, k, v: attend(q, k.masked_fill(dropped, 0), v.masked_fill(dropped, 0))


def with_dot(**changes: float | None) -> Callable[[Setup], Callable[..., Tensor]]:
    """Attention with another scale or cap, whatever the case chooses."""

    def prepare(setup: Setup) -> Callable[..., Tensor]:
        right = setup.rule

        def bind(case: Any, parameters: Any) -> Any:
            bound = right.bind(case, parameters)
            return replace(bound, dot=replace(bound.dot, **changes))

        rule = replace(right, bind=bind)
        return attention(replace(setup, rule=rule, scoring=bind(setup.case, setup.rule_parameters)))

    return prepare


# Coarser arithmetics


def as_it_is(x: Tensor) -> Tensor:
    return x


def to_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


def to_int8(x: Tensor) -> Tensor:
    step = x.abs().amax(-1, keepdim=True) / 127
    return (x / step.masked_fill(step == 0, 1)).round() * step


def rounding(setup: Setup, rounded: Rounding, scale: float = 1.0) -> Call:
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
    right = rounding(setup, as_it_is)

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

    right = rounding(setup, as_it_is)
    return lambda q, k, v: right(q.as_strided(q.shape, torch.empty(q.shape).stride()), k, v)


CONSTANTS = {"no_cap": {"cap": None}, "cap_of_2": {"cap": 2.0}, "root_of_128": {"scale": 128**-0.5}}

WEIGHTS = {
    "weights_right": weights,
    "weights_leak": changed(lambda found: found.clamp(min=1e-6)),
    "weights_transposed": changed(lambda found: found.mT.contiguous()),
    "weights_double": changed(lambda found: found.double()),
    "weights_raise": raising,
}
COARSE: dict[str, Callable[[Setup], Call]] = {
    "bfloat16_inside": partial(rounding, rounded=to_bfloat16),
    "bfloat16_declared": partial(rounding, rounded=to_bfloat16),
    "int8_declared": partial(rounding, rounded=to_int8),
    "declared_and_wrong": partial(rounding, rounded=to_bfloat16, scale=1.2),
    "scale_off": partial(rounding, rounded=as_it_is, scale=1.005),
    "reads_between_rows": reads_between_rows,
    "uses_between_rows": uses_between_rows,
}
ARITHMETICS = {"declared_and_wrong": "bfloat16", "bfloat16_declared": "bfloat16", "int8_declared": "int8"}


def coarse(name: str) -> Backend:
    return Backend(
        name, "test data", prepare=COARSE[name], rules=("scaled_dot",), computes_in=ARITHMETICS.get(name),
        supports=lambda case, rule: None if case.group == 1 else "no groups",
        passes=("forward", "backward", "both") if name.startswith("bfloat16") else ("forward",),
    )  # fmt: skip


@hookimpl
def attnbench_backends() -> list[Backend]:
    given = [Backend(name, "test data", attention, weights=weigh) for name, weigh in WEIGHTS.items()]
    every = ("forward", "backward", "both")
    # Without float32, in which a variant case would show more.
    half = {"dtypes": ("bfloat16",), "passes": every}
    return [
        *given,
        *map(coarse, COARSE),
        *(Backend(name, "test data", with_dot(**each), **half) for name, each in CONSTANTS.items()),
        Backend("keeps_a_mebibyte", "test data", keeps_a_mebibyte),
        Backend("clears_dropped", "test data", clears_dropped, ignores_dropped=True),
        Backend("reads_dropped", "test data", attention, ignores_dropped=True),
        Backend("value_of_one_key", "test data", value_of_one_key),
        Backend("reads_as_contiguous", "test data", as_contiguous),
        Backend("reads_features", "test data", partial(features_together, raises=False)),
        Backend("raises_on_features", "test data", partial(features_together, raises=True)),
        Backend("reads_values_as_keys", "test data", base_of_keys),
        Backend("contiguous_undeclared", "test data", when_contiguous),
        Backend("contiguous_declared", "test data", when_contiguous, needs_contiguous=True),
        Backend("doubles_graded", "test data", when_not_graded, passes=every),  # type: ignore[arg-type]
    ]
