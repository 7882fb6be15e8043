"""Backends with right outputs, whose attention weights are wrong or whose inputs must be ordinary.

And some that ignore constants of the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench import Backend, hookimpl
from attnbench.kit.attention import attention, weights
from attnbench.masks import kept_keys

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench import Setup

    Weigh = Callable[[Tensor, Tensor], Tensor]


def changed(change: Callable[[Tensor], Tensor]) -> Callable[[Setup], Weigh]:
    def prepare(setup: Setup) -> Weigh:
        weigh = weights(setup)
        return lambda q, k: change(weigh(q, k))

    return prepare


def leaking(found: Tensor) -> Tensor:
    return found.clamp(min=1e-6)


def one_row_off(found: Tensor) -> Tensor:
    found[0, 0, -1] *= 1.0001
    return found


def scaled(setup: Setup) -> Weigh:
    weigh = weights(setup)
    return lambda q, k: weigh(q * 1.01, k)


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


CONSTANTS = {"no_cap": {"cap": None}, "cap_of_2": {"cap": 2.0}, "root_of_128": {"scale": 128**-0.5}}

WEIGHTS = {
    "weights_right": weights,
    "weights_leak": changed(leaking),
    "weights_off": changed(one_row_off),
    "weights_transposed": changed(lambda found: found.mT.contiguous()),
    "weights_of_other_heads": changed(lambda found: found.flip(1)),
    "weights_scaled": scaled,
    "weights_double": changed(lambda found: found.double()),
    "weights_raise": raising,
}


@hookimpl
def attnbench_backends() -> list[Backend]:
    given = [Backend(name, "test data", attention, weights=weigh) for name, weigh in WEIGHTS.items()]
    every = ("forward", "backward", "both")
    # Without float32, in which a variant case would show more.
    half = {"dtypes": ("bfloat16",), "passes": every}
    return [
        *given,
        *(Backend(name, "test data", with_dot(**each), **half) for name, each in CONSTANTS.items()),
        Backend("keeps_a_mebibyte", "test data", keeps_a_mebibyte),
        Backend("clears_dropped", "test data", clears_dropped, ignores_dropped=True),
        Backend("reads_dropped", "test data", attention, ignores_dropped=True),
        Backend("value_of_one_key", "test data", value_of_one_key),
        Backend("reads_as_contiguous", "test data", as_contiguous),
        Backend("contiguous_undeclared", "test data", when_contiguous),
        Backend("contiguous_declared", "test data", when_contiguous, needs_contiguous=True),
        Backend("doubles_graded", "test data", when_not_graded, passes=every),  # type: ignore[arg-type]
    ]
