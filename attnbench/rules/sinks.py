"""Attention sinks: a learned logit for each head that takes weight and gives nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.rules.dot import SCALE, dot_products, scale_of, scaled_scores
from attnbench.types.case import Case
from attnbench.types.rule import Constant, DotForm, Parameter, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm(scale=scale_of(case)), sink=parameters["sink"])


def _drawn(Lk: int) -> Parameter:
    def draw(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
        # About as heavy as all keys together, so that it takes about half of the weight.
        return np.asarray(np.log(Lk) + rng.standard_normal((H, *shape)))

    return Parameter("sink", (), draw)


SINKS = Rule(
    name="sinks",
    formula="q·k / √D, and exp(sink) more in the denominator, sink for each head",
    source="Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks; OpenAI 2025, gpt-oss",
    reference=scaled_scores,
    bind=_bind,
    inner=dot_products,
    laws=("flip_features", "scale_features", "permute_queries"),
    parameters=lambda case: (_drawn(case.Lk),),
    constants=(
        SCALE,
        Constant(
            name="sink",
            meaning="that of all heads, in place of drawn ones",
            least=-100,
            most=100,
            default=None,
            example=2,
        ),
    ),
    sink=lambda parameters: float(parameters["sink"]),
)
