"""Stress inputs ``one_hot``: the output is the value of one key, the first, the last or one far inside.

Where scores are products, the score of this key is so far above all others that its weight is 1, and larger
than exp can hold in float32. Elsewhere all values are 0 but that of this key, so that a kernel that forgets
the key returns 0.

Records call this kind ``one_key``.
"""

from __future__ import annotations

import numpy as np

from attnbench.inputs.draw import Stored, Wide, draw_activations, store, stream, widen
from attnbench.inputs.one_feature import (
    LARGEST_PRODUCT,
    OneFeature,
    one_feature,
    power_of_two,
    seen_counts,
    sees_two,
)
from attnbench.types.case import Case, Dtype
from attnbench.types.rule import Rule

PLACES = ("first", "last", "far")

LEAST_SCORE: dict[Dtype, float] = {"bfloat16": 100.0, "float16": 100.0, "float32": 100.0, "float64": 750.0}
"""exp of more than 88.7 is infinite in float32, of more than 709.8 in float64."""
GAP = 40.0
"""The distance to all other scores: the others together weigh less than 1e-13, however scores are rounded."""


def applies(case: Case, rule: Rule) -> bool:
    """Return whether this is ``attention`` and some query sees two keys or more."""
    return case.layer is None and sees_two(case)


def draw(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw inputs number ``index``. The place of the key changes with batch element, key/value head and draw.

    Queries that do not see the key are as in an ordinary draw.
    """
    drawn = draw_activations(case, rule, entropy, index)
    q, k, v = (widen(array, case.dtype) for array in drawn)
    rng = stream(case, "one_key", entropy, index)
    at = _places(case, rng, index)
    b, h = np.indices(at.shape)
    found = one_feature(case, rule, int(rng.integers(case.D)))
    sizes = None if found is None else _sizes(case, found)
    value = rng.choice([-1.0, 1.0], (*at.shape, case.Dv)) * (2 + rng.random((*at.shape, case.Dv)))
    if found is None or sizes is None:
        v[:] = 0
    else:
        q, k = _scored(case, found, sizes, q, k, at)
    v[b, h, at] = value
    return store(q, case.dtype), store(k, case.dtype), store(v, case.dtype)


def _places(case: Case, rng: np.random.Generator, index: int) -> np.ndarray:
    """Return the key that has the weight, (B, Hkv), among those that some query sees."""
    seen = seen_counts(case)
    at = np.zeros((case.B, case.Hkv), np.intp)
    for b in range(case.B):
        keys = np.flatnonzero(seen[b])
        if not len(keys):
            continue
        inner = keys[1:-1] if len(keys) > 2 else keys
        for h in range(case.Hkv):
            place = PLACES[(index + b * case.Hkv + h) % len(PLACES)]
            at[b, h] = {"first": keys[0], "last": keys[-1], "far": rng.choice(inner)}[place]
    return at


def _sizes(case: Case, found: OneFeature) -> tuple[Wide, float] | None:
    """Return the sizes of queries in their feature, (H,), and of the key in its own; None where float16
    overflows.

    Queries have only this feature where other features would also score with the key.
    """
    if not found.linear:
        return None
    size = np.ones(case.H) if found.alone else np.full(case.H, 4.0)
    spread = found.others if found.alone else found.others * size
    least = max(LEAST_SCORE[case.dtype], GAP + float(6 * spread.max()) + found.bias)
    weakest = float((np.abs(found.slopes) * size).min())
    key = 2 * power_of_two(least / weakest)
    if found.alone:
        # The number shared out between both, so that neither is large.
        share = power_of_two(np.sqrt(key))
        size, key = size * share, key / share
    if case.dtype == "float16" and float(size.max()) * key > LARGEST_PRODUCT:
        return None
    return size * np.sign(found.slopes), key


def _scored(
    case: Case, found: OneFeature, sizes: tuple[Wide, float], q: Wide, k: Wide, at: np.ndarray
) -> tuple[Wide, Wide]:
    b, h = np.indices(at.shape)
    size, key = sizes
    if not found.alone:
        q = np.zeros_like(q)
    for head in range(case.H):
        q[:, head, :, found.queries[head]] = size[head]
    k[..., found.key] = 0
    k[b, h, at] = 0
    k[b, h, at, found.key] = key
    return q, k
