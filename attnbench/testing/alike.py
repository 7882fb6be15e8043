"""How near two answers are, which known mistakes an answer equals, and the answers of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnbench.testing.diagnosis_process import Diagnosed
from attnbench.types.backend import Setup
from attnbench.types.operation import operation_of
from attnbench.worker.gradients import leaf_inputs, passed, with_gradients

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.worker.gradients import Inputs


class Told(Protocol):
    """What every known mistake has."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def summary(self) -> str:
        """The mistake in a few words."""

    @property
    def advice(self) -> str:
        """What to do about it."""


Parts = dict[str, NDArray[Any]]
"""An answer in float64, by part: ``out``, and gradients where the case has them; or by sequence."""
Known = TypeVar("Known")

NEAR = 0.1
"""A mistake is recognised where the answer is ten times nearer to its answer than to the exact one."""
AS_NEAR = 2.0
"""Answers of two mistakes that are as near as that to this one may each be its cause."""
RIGHT = 32.0
"""In units of rounding: an answer nearer to the exact one counts as right here. This is not the verdict."""


def distance(left: Parts, right: Parts, scale: Parts) -> float:
    """Return the RMS difference of two answers in units of the exact one's RMS, the worst over parts.

    Infinite where shapes or the places of NaN differ.
    """
    total = 0.0
    for name, a in left.items():
        b = right[name]
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(a) & np.isfinite(scale[name])
        if finite.any():
            unit = float(np.sqrt(np.mean(np.square(scale[name][finite]))))
            error = float(np.sqrt(np.mean(np.square(a[finite] - b[finite]))))
            total = max(total, error / (unit or 1.0))
    return total


def diagnosed_as(known: Sequence[Told], rivals: Sequence[Told] = ()) -> Diagnosed:
    """Return the diagnosis of an answer that equals these mistakes, as :func:`nearest` has them.

    rivals: those of them that would be alike in no other case, of which none could be asked.
    """
    equals = {
        one.name: f"Your output equals the known mistake “{one.summary}”: {one.advice}." for one in known
    }
    do = equals[known[0].name]
    if rivals:
        each = "; or ".join(f"“{one.summary}”: {one.advice}" for one in (known[0], *rivals))
        do = f"Your output equals several known mistakes, which are alike in this case: {each}."
    return Diagnosed(do, known[0].name, equals=equals)


def nearest(
    mistakes: Iterable[Known], answer: Callable[[Known], Parts], got: Parts, right: Parts, rounding: float
) -> list[Known]:
    """Return the mistakes whose answers are near enough and as near as any, the nearest first.

    answer: gives that of a mistake; raises where it can't be made. rounding: within which answers are alike.
    """
    best, least = None, NEAR * min(distance(got, right, right), 1.0)
    near: list[tuple[float, Known]] = []
    for mistake in mistakes:
        try:
            theirs = answer(mistake)
        except Exception:
            # It can't be made in this case.
            continue
        off = distance(got, theirs, right)
        near.append((off, mistake))
        # If several mistakes give the same answer, the first counts: it is the more particular one.
        if off < 0.99 * least:
            best, least = mistake, off
    if best is None:
        return []
    as_near = max(AS_NEAR * least, rounding)
    return [best, *(one for off, one in near if off <= as_near and one is not best)]


def answered(
    prepare: Callable[[Setup], Callable[..., Any]], setup: Setup, inputs: Inputs, upstream: Tensor | None
) -> Parts:
    """Return what a backend gives, by part in float64; with gradients where there is one of the output."""
    import torch

    if upstream is None:
        with torch.inference_mode():
            given: Any = prepare(setup)(*inputs)
        outputs = given if isinstance(given, tuple) else (given,)
        names = [spec.name for spec in operation_of(setup.case).outputs(setup.case)]
        return {name: x.double().cpu().numpy() for name, x in zip(names, outputs, strict=True)}
    with torch.inference_mode(False), torch.enable_grad():
        own, sources = with_gradients(setup), leaf_inputs(inputs)
        made = passed(prepare(own), own, upstream.clone())
        made.renew(sources)
        parts: Any = made(*sources)
        return {name: x.detach().double().cpu().numpy() for name, x in zip(made.names, parts, strict=True)}
