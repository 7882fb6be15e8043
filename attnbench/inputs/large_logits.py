"""Scores of ±80 to ±1000 that every right kernel agrees on: sums of powers of two, tied or far apart.

Rounding is relative, so a large score has a large error, and kernels that round differently would differ.
Here one feature makes the score, of signed powers of two: it is exact in any order of summation, ties are
ties after any scaling, and what isn't tied is 40 or more apart.
"""

from __future__ import annotations

import numpy as np

from attnbench.inputs.draw import Stored, Wide, draw_activations, store, stream, widen
from attnbench.inputs.one_feature import LARGEST_PRODUCT, OneFeature, one_feature, power_of_two, sees_two
from attnbench.types.case import Case, Dtype
from attnbench.types.rule import Rule

STEP: dict[Dtype, float] = {"bfloat16": 64.0, "float16": 64.0, "float32": 64.0, "float64": 128.0}
"""Between two levels of scores, within a factor √2 either way."""
LEVELS = (-2.0, -1.0, 0.0, 1.0, 2.0)
LOUDER = (1.0, 2.0, 4.0)
"""What queries multiply the levels by: scores go up to eight steps, more than exp can hold in any dtype."""
FEW = 4
"""About so many keys have the highest level, and the lowest."""


def applies(case: Case, rule: Rule) -> bool:
    """Where scores are products, and nothing is added by mask or positions that would part ties."""
    if case.layer is not None or case.mask.explicit == "float" or not sees_two(case):
        return False
    found = one_feature(case, rule, 0)
    return found is not None and found.bias == 0 and _sizes(case, found) is not None


def draw_loud(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw number ``index``: v as in an ordinary draw, q and k of one feature each."""
    _, _, v = draw_activations(case, rule, entropy, index)
    rng = stream(case, "loud", entropy, index)
    found = one_feature(case, rule, int(rng.integers(case.D)))
    sizes = None if found is None else _sizes(case, found)
    if found is None or sizes is None:
        raise ValueError(f"the scores of {rule.name} are no products of q and k")
    of_query, of_key, louder = sizes
    q, k = np.zeros((case.B, case.H, case.Lq, case.D)), np.zeros((case.B, case.Hkv, case.Lk, case.D))
    loudness = rng.choice([-1.0, 1.0], q.shape[:3]) * rng.choice(louder, q.shape[:3])
    for head in range(case.H):
        q[:, head, :, found.queries[head]] = loudness[:, head] * of_query[head]
    rare = min(0.2, FEW / case.Lk)
    often = (1 - 2 * rare) / 3
    k[..., found.key] = rng.choice(LEVELS, k.shape[:3], p=[rare, often, often, often, rare]) * of_key
    return store(q, case.dtype), store(k, case.dtype), store(widen(v, case.dtype), case.dtype)


def _sizes(case: Case, found: OneFeature) -> tuple[Wide, float, tuple[float, ...]] | None:
    """Of queries (H,), of keys, and how much louder queries may be; None where float16 can't hold it."""
    step = np.array([power_of_two(STEP[case.dtype] / abs(slope)) for slope in found.slopes])
    of_key = power_of_two(float(np.sqrt(step.min())))
    quietest = float(step.max()) * max(LEVELS)
    louder: tuple[float, ...] = LOUDER
    if case.dtype == "float16":
        louder = tuple(factor for factor in LOUDER if factor * quietest <= LARGEST_PRODUCT)
    return (step / of_key, of_key, louder) if louder else None
