"""Which known mistake gives the same answer as a backend that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.check.gradients import leaf_inputs, passed, recast, with_gradients
from attnbench.check.plain import PLAIN
from attnbench.inputs.rounding import EPS
from attnbench.testing.mistakes import mistakes_for
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.check.gradients import Triple
    from attnbench.types.backend import Call

Parts = Mapping[str, NDArray[Any]]

NEAR = 0.1
"""A mistake counts as the one where the answer is ten times nearer to its answer than to the exact one."""
RIGHT = 32.0
"""In units of rounding: what is nearer to the exact answer than this is taken for right here. No verdict."""


@dataclass(frozen=True)
class Likeness:
    """name: of the mistake whose answer this is, "" for none; summary: what it does. right: whether the
    answer is no farther off than rounding, so that there is nothing to find."""

    name: str = ""
    summary: str = ""
    right: bool = False


def answer_of(
    prepare: Callable[[Setup], Call], setup: Setup, inputs: Triple, upstream: Tensor | None
) -> dict[str, NDArray[Any]]:
    """What a way to compute gives, in float64, by part: ``out``, and gradients where the case has them."""
    import torch

    if upstream is None:
        with torch.inference_mode():
            return {"out": prepare(setup)(*inputs).double().cpu().numpy()}
    with torch.inference_mode(False), torch.enable_grad():
        own, sources = with_gradients(setup), leaf_inputs(inputs)
        made = passed(prepare(own), own, upstream.clone())
        made.renew(sources)
        parts: Any = made(*sources)
        return {name: x.detach().double().cpu().numpy() for name, x in zip(made.names, parts, strict=True)}


def exact(setup: Setup, inputs: Triple, upstream: Tensor | None) -> dict[str, NDArray[Any]]:
    """The right answer, by the plain form in float64."""
    wide, sources = recast(setup, inputs, "float64")
    return answer_of(PLAIN.prepare, wide, sources, None if upstream is None else upstream.double())


def likeness(got: Parts, setup: Setup, inputs: Triple, upstream: Tensor | None) -> Likeness:
    """The known mistake whose answer is nearest, where it is near enough.

    setup, inputs, upstream: what the backend had, in the case's dtype.
    """
    right = exact(setup, inputs, upstream)
    far = _distance(got, right, right)
    if far <= RIGHT * EPS[setup.case.dtype]:
        return Likeness(right=True)
    wide, sources = recast(setup, inputs, "float64")
    above = None if upstream is None else upstream.double()
    best, least = Likeness(), NEAR * min(far, 1.0)
    for mutant in mistakes_for(setup.case, setup.rule):
        in_wide = "float64" in mutant.dtypes
        given = (wide, sources, above) if in_wide else (setup, inputs, upstream)
        try:
            theirs = answer_of(mutant.prepare, *given)
        except Exception:
            continue
        distance = _distance(got, theirs, right)
        # Of those that come to the same the first, which is the more particular.
        if distance < 0.99 * least:
            best, least = Likeness(mutant.name, mutant.summary), distance
    return best


def wrong_elements(
    got: Parts, setup: Setup, inputs: Triple, upstream: Tensor | None
) -> dict[str, NDArray[np.bool_]]:
    """Of each part that is wrong, which of its elements are."""
    right = exact(setup, inputs, upstream)
    found = {}
    for name, theirs in right.items():
        limit = RIGHT * EPS[setup.case.dtype] * float(np.abs(theirs).max())
        bad = ~(np.abs(got[name] - theirs) <= limit)
        if bad.any():
            found[name] = bad
    return found


def _distance(left: Parts, right: Parts, scale: Parts) -> float:
    """RMS of what two answers differ by, in units of the exact one's, over parts; infinite where they have
    their NaN in other places."""
    if set(left) != set(right):
        return float("inf")
    total = 0.0
    for name, a in left.items():
        b = right[name]
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(a) & np.isfinite(scale[name])
        unit = float(np.sqrt(np.mean(np.square(scale[name][finite])))) if finite.any() else 1.0
        error = float(np.sqrt(np.mean(np.square((a - b)[finite])))) if finite.any() else 0.0
        total = max(total, error / (unit or 1.0))
    return total
