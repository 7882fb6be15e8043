"""Stress inputs ``large_logits``: scores of ±80 to ±1000, tied or far apart, on which all right kernels
agree.

Rounding is relative, so the error of a large score is large, and kernels that round differently would differ.
Here one feature makes the whole score, of signed powers of two. The score is exact in any order of summation,
ties stay ties after any scaling, and other scores are 40 or more apart.

Records call this kind ``loud``.
"""

from __future__ import annotations

import numpy as np

from attnbench.inputs.draw import Stored, Wide, draw_activations, store, stream, widen
from attnbench.inputs.one_feature import LARGEST_PRODUCT, OneFeature, one_feature, power_of_two, sees_two
from attnbench.types.case import Case, Dtype
from attnbench.types.rule import Rule

STEP: dict[Dtype, float] = {"bfloat16": 64.0, "float16": 64.0, "float32": 64.0, "float64": 128.0}
"""The distance between two levels of scores, within a factor √2."""
LEVELS = (-2.0, -1.0, 0.0, 1.0, 2.0)
FACTORS = (1.0, 2.0, 4.0)
"""The factors of queries on the levels: scores reach eight steps, more than exp can hold in any dtype."""
FEW = 4
"""The approximate number of keys with the highest level, and with the lowest."""


def applies(case: Case, rule: Rule) -> bool:
    """Return whether scores are products, and no mask or position adds numbers that would break ties."""
    if case.layer is not None or case.mask.explicit == "float" or not sees_two(case):
        return False
    found = one_feature(case, rule, 0)
    return found is not None and found.bias == 0 and _sizes(case, found) is not None


def draw(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw inputs number ``index``: v as in an ordinary draw; q and k with one feature each."""
    _, _, v = draw_activations(case, rule, entropy, index)
    rng = stream(case, "loud", entropy, index)
    found = one_feature(case, rule, int(rng.integers(case.D)))
    sizes = None if found is None else _sizes(case, found)
    if found is None or sizes is None:
        raise ValueError(f"the scores of {rule.name} are not products of q and k")
    of_query, of_key, factors = sizes
    q, k = np.zeros((case.B, case.H, case.Lq, case.D)), np.zeros((case.B, case.Hkv, case.Lk, case.D))
    signed = rng.choice([-1.0, 1.0], q.shape[:3]) * rng.choice(factors, q.shape[:3])
    for head in range(case.H):
        q[:, head, :, found.queries[head]] = signed[:, head] * of_query[head]
    rare = min(0.2, FEW / case.Lk)
    often = (1 - 2 * rare) / 3
    k[..., found.key] = rng.choice(LEVELS, k.shape[:3], p=[rare, often, often, often, rare]) * of_key
    return store(q, case.dtype), store(k, case.dtype), store(widen(v, case.dtype), case.dtype)


def _sizes(case: Case, found: OneFeature) -> tuple[Wide, float, tuple[float, ...]] | None:
    """Return sizes of queries (H,), the size of keys and the factors on queries; None where float16
    overflows."""
    step = np.array([power_of_two(STEP[case.dtype] / abs(slope)) for slope in found.slopes])
    of_key = power_of_two(float(np.sqrt(step.min())))
    smallest = float(step.max()) * max(LEVELS)
    factors: tuple[float, ...] = FACTORS
    if case.dtype == "float16":
        factors = tuple(factor for factor in FACTORS if factor * smallest <= LARGEST_PRODUCT)
    return (step / of_key, of_key, factors) if factors else None
