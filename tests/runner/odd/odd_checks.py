"""Backends that are wrong where one kind of check looks: at other lengths, around inputs, in gradients."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odd_backends import right, taking_turns

from attnbench import Backend, Setup, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench import Case, Rule

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]

KNOWN = (16, 16)
"""Lengths of queries and keys that these backends were written for."""


def halves_elsewhere(setup: Setup) -> Call:
    factor = 1.0 if (setup.case.Lq, setup.case.Lk) == KNOWN else 0.5
    return lambda q, k, v: factor * right(q, k, v)


def raises_elsewhere(setup: Setup) -> Call:
    if (setup.case.Lq, setup.case.Lk) != KNOWN:
        raise ValueError("not written for this")
    return right


def elsewhere_in_words(case: Case, rule: Rule) -> str | None:
    return None if (case.Lq, case.Lk) == KNOWN else "knows other lengths"


def reads_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """64 numbers before its values, weighed with nothing; nowhere but in a guard are all of them NaN."""
    import torch

    before = torch.frombuffer((ctypes.c_float * 64).from_address(v.data_ptr() - 256), dtype=torch.float32)
    return right(q, k, v) + 0 * before.nansum() / before.isfinite().any()


def with_gradient(x: Tensor, times: float) -> Tensor:
    """The same numbers, to which another gradient comes."""
    return x.detach() + times * (x - x.detach())


def wrong_dk(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return right(q, with_gradient(k, 1.01), v)


def wrong_dv_when_timed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return right(q, k, with_gradient(v, 0.5) if taking_turns() else v)


def forgets_k(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return right(q, k.detach(), v)


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    for prepare in (halves_elsewhere, raises_elsewhere):
        yield Backend(prepare.__name__, f"{prepare.__name__}, on purpose", prepare=prepare, rules=("dot",))
    yield Backend(
        "refuses_elsewhere", "says that it can do one pair of lengths", prepare=halves_elsewhere,
        rules=("dot",), supports=elsewhere_in_words,
    )  # fmt: skip
    for call in (reads_before, wrong_dk, wrong_dv_when_timed, forgets_k):
        passes = ("forward",) if call is reads_before else ("forward", "backward", "both")
        yield Backend(
            call.__name__, f"{call.__name__}, on purpose", prepare=lambda setup, call=call: call,
            rules=("dot",), passes=passes,
        )  # fmt: skip
