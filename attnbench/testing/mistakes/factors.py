"""Numbers that multiply keys or values where nothing asks for them, found from a wrong output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.testing.mistakes.parts import Form, Mistake, right_mix, right_scores
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    Array = NDArray[Any]

LARGEST = 64.0
"""Numbers from 1/64 to 64 are tried."""
_STEPS, _ROUNDS = 24, 6
_ADVICE = (
    "numbers in the dtype of the case have no scale but that of the scores: apply those of a cache where "
    "case.kv says that it holds codes alone, and keep none from one call to the next"
)


def factors_in(answer: Callable[[Mistake], Array], got: Array) -> Iterator[Mistake]:
    """Yield a mistake with the numbers that bring an output nearest to a wrong one.

    answer: the output (B, H, Lq, Dv) of a mistake.
    """
    if not np.isfinite(got).all():
        return

    def fitted(of_keys: float) -> tuple[float, float]:
        """Return the best number for the values, and what is left."""
        out = answer(_mistake(of_keys, 1.0))
        of_values = float((out * got).sum() / (np.square(out).sum() or 1.0))
        return of_values, float(np.square(of_values * out - got).sum())

    at, width = 0.0, np.log(LARGEST)
    for _ in range(_ROUNDS):
        tried = np.linspace(at - width, at + width, _STEPS + 1)
        at = float(min(tried, key=lambda power: fitted(np.exp(power))[1]))
        width *= 2 / _STEPS
    of_keys = float(np.exp(at))
    yield _mistake(of_keys, fitted(of_keys)[0])


def _mistake(of_keys: float, of_values: float) -> Mistake:
    def scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
        return right_scores(setup, q, k) * of_keys

    def mix(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
        return right_mix(setup, weights, v) * of_values

    summary = f"keys times {of_keys:.3g} and values times {of_values:.3g}"
    return Mistake("keys_or_values_scaled", summary, _ADVICE, Form(scores=scores, mix=mix))
