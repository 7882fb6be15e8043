"""Wrong numbers in the scores: their scale, and logits that are far out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.inputs import quiet
from attnbench.selftest.zoo.animal import Animal
from attnbench.selftest.zoo.form import Form, mistaken, normalised, right_scores
from attnbench.selftest.zoo.where import scaled, scores_matter, unbounded
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor


def _times(factor: float) -> Form:
    """Scores that are too large by a factor; in the wide dtype, so that no rounding hides it."""

    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        return normalised(setup, scores.to(added.dtype) * factor + added).to(scores.dtype)

    return Form(weights=weights)


def _root(power: int) -> Form:
    """Queries times √D to some power."""
    return Form(scores=lambda setup, q, k: right_scores(setup, q * setup.case.D ** (power / 2), k))


def _nan_far_out(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    made = right_scores(setup, q, k)
    return made.masked_fill(made.abs() > 40, float("nan"))


def _clamped(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k).clamp(-20, 20)


def _of_the_key_before(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k).roll(1, -1)


ANIMALS: tuple[Animal, ...] = (
    mistaken(
        "scale_1_percent", "scores 1 % too large", _times(1.01), scores_matter, dtypes=("float32", "float64")
    ),
    mistaken(
        "scale_1_percent_in_bfloat16",
        "scores 1 % too large, for bfloat16 alone",
        _times(1.01),
        # Elsewhere it is no more than a right kernel's rounding.
        quiet.applies,
        dtypes=("bfloat16",),
    ),
    mistaken(
        "scale_1_percent_in_float16",
        "scores 1 % too large, for float16 alone",
        _times(1.01),
        scores_matter,
        dtypes=("float16",),
    ),
    mistaken(
        "scale_a_thousandth_in_float32",
        "scores 0.1 % too large, for float32 alone",
        _times(1.001),
        scores_matter,
        dtypes=("float32",),
    ),
    mistaken("scale_twice", "divided by √D once more", _root(-1), scaled),
    mistaken("scale_omitted", "not divided by √D", _root(1), scaled),
    mistaken("scores_negated", "the farthest keys have most weight", _times(-1), scores_matter),
    mistaken(
        "scores_of_the_key_before",
        "each key has its neighbour's score",
        Form(scores=_of_the_key_before),
        lambda case, rule: case.Lk > 1 and scores_matter(case, rule),
    ),
    mistaken("nan_for_large_logits", "NaN where a logit is beyond 40", Form(scores=_nan_far_out), unbounded),
    mistaken("logits_clamped", "logits kept within 20", Form(scores=_clamped), unbounded),
)
