"""ALiBi: a scaled dot product less a slope times the distance."""

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


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    distance = np.abs(positions[:, None] - np.arange(len(k), dtype=q.dtype))
    return scaled_scores(q, k, parameters, positions) - parameters["slope"] * distance


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    import torch

    slope = parameters["slope"]
    # float16 has no odd numbers above 2048, bfloat16 none above 256.
    exact = torch.float64 if case.dtype == "float64" else torch.float32

    def bias(rows: slice, cols: slice) -> Tensor:
        queries = torch.arange(rows.start, rows.stop, device=slope.device) + case.query_offset
        keys = torch.arange(cols.start, cols.stop, device=slope.device)
        distance = (queries[:, None] - keys).abs().to(exact)
        return (-slope.to(exact)[:, None, None] * distance).to(slope.dtype)

    return Scoring(dot=DotForm(scale=scale_of(case)), bias=bias)


def slopes(H: int) -> Array:
    """2^(-8h/H) for heads h = 1 … H, also where H isn't a power of two.

    The paper gives this for powers of two; its code fills other H from two such series. One series
    keeps the first and last slope the same for every H.
    """
    return np.asarray(np.exp2(-8 * np.arange(1, H + 1) / H))


ALIBI = Rule(
    name="alibi",
    formula="q·k / √D − slope·|p − j|, p the query's position, slope = 2^(−8h/H) for head h = 1 … H",
    source="Press et al. 2022, Train Short, Test Long: Attention with Linear Biases, section 3",
    reference=_reference,
    bind=_bind,
    inner=dot_products,
    laws=("flip_features", "scale_features"),
    parameters=lambda case: (Parameter("slope", (), lambda rng, H, shape: slopes(H)),),
    constants=(
        SCALE,
        Constant(
            name="slope",
            meaning="that of all heads",
            least=0,
            most=8,
            default=None,
            example=0.25,
        ),
    ),
)
