"""Stress inputs whose scores are known, because one feature alone makes them.

The words that seed their draws are older than their names and stay: with others, all inputs would differ.

``large_logits``: scores of ±80 to ±1000, tied or far apart, on which all right kernels agree. Rounding is
relative, so the error of a large score is large, and kernels that round differently would differ. Here one
feature makes the whole score, of signed powers of two. The score is exact in any order of summation, ties
stay ties after any scaling, and other scores are 40 or more apart.

``one_hot``: the output is the value of one key, the first, the last or one far inside. Where scores are
products, the score of this key is so far above all others that its weight is 1, and larger than exp can hold
in float32. Elsewhere all values are 0 but that of this key, so that a kernel that forgets the key returns 0.

``unlikely_values``: only unlikely keys have values, so that a wrong scale shows. Most keys score 0 and have
the value 0. A few score -s and have values of one sign in each feature, so the output
is about e^-s times a sum without cancellation. A scale that is wrong by 1 % changes the output by s %: by 8 %
in bfloat16, where a right kernel is off by one. The scores are exact, whatever a kernel scales and rounds
first (:func:`attnbench.inputs.one_feature.kindly_rounded`). The weights of likely keys are 1 before division,
so that their sum is exact in any order.

``even_weights`` (``even`` in records), for float16 alone: 15 keys share all the weight. Their score is 0 and
every other is 32 or more below. 1/15 is off by 0.34 % in bfloat16, by 0.02 % in float16. The values have one
sign in each feature, so that these errors add up. On other inputs bfloat16 weights stay within the limits of
float16.

``light_keys``, for half precision and many keys alone: one key, the first or the last, has weight 1 and each
other a 512th of a gap of the dtype. A block of up to 128 of them adds a quarter of a gap to a running sum
that has the heavy key: nothing, where this sum is in the dtype of the case. The values of the heavy key have
one sign in each feature and all others the other sign, so that the loss shows. It grows with the keys: 8,192
weigh 16 gaps.

``far_below``: all keys of a row have the same score, which is -64 to -16,384, so that the output is the mean
of the values that it sees. A running maximum that starts at 0 or at -1e4 takes all weights for 0.

``equal``: all keys of a head are the same, so that the scores of a row are equal, whatever the rule adds for
positions. The values that it sees then count alike, also where they are many.

``subnormal``: a quarter of all numbers, and the last feature of keys and values, are below the smallest
normal number of the dtype. A kernel may take them for 0: no limit is as small as they are, and the first
feature of each query and key has none, so that no norm is. The inverses of those of the last feature are inf.

``large_values``, for float16 alone: values of 4,096 to 8,192, of one sign in each feature. Their weighted
mean fits float16; sums of 16 of them do not, and weights are often 1 at most before they are divided.
"""

from __future__ import annotations

import numpy as np

from attnbench.inputs.draw import EPS, Stored, Wide, draw_activations, store, stream, widen
from attnbench.inputs.one_feature import (
    LARGEST_PRODUCT,
    OneFeature,
    kept_chunks,
    kindly_rounded,
    one_feature,
    power_of_two,
    seen_counts,
    sees_two,
)
from attnbench.types.case import Case, Dtype
from attnbench.types.rule import Rule

Triple = tuple[Stored, Stored, Stored]

STEP: dict[Dtype, float] = {"bfloat16": 64.0, "float16": 64.0, "float32": 64.0, "float64": 128.0}
"""The distance between two levels of large scores, within a factor √2."""
LEVELS = (-2.0, -1.0, 0.0, 1.0, 2.0)
FACTORS = (1.0, 2.0, 4.0)
"""The factors of queries on the levels: scores reach eight steps, more than exp can hold in any dtype."""
FEW = 4
"""The approximate number of keys with the highest level, and with the lowest."""

PLACES = ("first", "last", "far")
LEAST_SCORE: dict[Dtype, float] = {"bfloat16": 100.0, "float16": 100.0, "float32": 100.0, "float64": 750.0}
"""exp of more than 88.7 is infinite in float32, of more than 709.8 in float64."""
GAP = 40.0
"""The distance to all other scores: the others together weigh less than 1e-13, however scores are rounded."""

DEPTH: dict[Dtype, float] = {"bfloat16": 8.0, "float16": 2.0, "float32": 1.0, "float64": 1.0}
"""s, as large as the dtype needs to show 1 % (0.1 % in float32). A larger s would hurt: in float16 a
weight of e^-8 / 1000 has lost half its bits, and in float32 the rounding of a score of 8 exceeds the
limits."""
UNLIKELY = 4.0
"""The number of unlikely keys among the first j, divided by ln(j), about. Early rows of a causal mask then
see some, and a long sum has few equal terms."""


EVEN_KEYS = 15
"""Of all numbers up to 29, the inverse of 15 loses most in bfloat16."""
EVEN_GAP = 64.0
"""The distance to the scores of other keys, within a factor √2: e^-45 is 0 in float16."""


LIGHT = 2.0**-9
"""The weight of a light key over that of the heavy one, in gaps of the dtype."""
LIGHT_WITHIN = 0.02
"""The share by which its score may be off: 2 % are a fourth of its weight."""
MANY_LIGHT = 2048
"""The fewest keys on which the loss is above the limits."""


def large_logits_apply(case: Case, rule: Rule) -> bool:
    """Return whether scores are products, and no mask or position adds numbers that would break ties."""
    found = _products(case, rule)
    return found is not None and found.bias == 0 and _large_sizes(case, found) is not None


def largest_logit(case: Case) -> float:
    """Return the largest magnitude of a score in ``large_logits``."""
    return float(np.sqrt(2)) * STEP[case.dtype] * max(LEVELS) * max(FACTORS)


def draw_large_logits(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``: v as in an ordinary draw; q and k with one feature each."""
    v = draw_activations(case, rule, entropy, index)[2]
    rng = stream(case, "loud", entropy, index)
    found = _feature(case, rule, rng)
    sizes = _large_sizes(case, found)
    assert sizes is not None
    of_query, of_key, factors = sizes
    shape = (case.B, case.H, case.Lq)
    signed = rng.choice([-1.0, 1.0], shape) * rng.choice(factors, shape)
    rare = min(0.2, FEW / case.Lk)
    often = (1 - 2 * rare) / 3
    levels = rng.choice(LEVELS, (case.B, case.Hkv, case.Lk), p=[rare, often, often, often, rare])
    q, k = _one_feature_each(case, found, signed * of_query[:, None], levels * of_key)
    return store(q, case.dtype), store(k, case.dtype), v


BELOW: dict[Dtype, tuple[float, ...]] = {
    "bfloat16": (1.0, 16.0, 256.0), "float16": (1.0, 4.0), "float32": (1.0, 16.0, 256.0),
    "float64": (1.0, 16.0, 256.0),
}  # fmt: skip
"""How many steps of ``STEP`` a row lies below zero; products of q and k must fit float16."""
LARGE_VALUES = 4096.0


def farthest_below(case: Case) -> float:
    """Return the largest magnitude of a score in ``far_below``."""
    return float(np.sqrt(2)) * STEP[case.dtype] * max(BELOW[case.dtype])


def draw_far_below(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``: v as in an ordinary draw; q and k have one feature, all keys the same."""
    v = draw_activations(case, rule, entropy, index)[2]
    rng = stream(case, "far_below", entropy, index)
    found = _feature(case, rule, rng)
    sizes = _large_sizes(case, found)
    assert sizes is not None
    of_query, of_key, _ = sizes
    sign = np.sign(found.slopes)[:, None]
    rows = -sign * rng.choice(BELOW[case.dtype], (case.B, case.H, case.Lq)) * of_query[:, None]
    q, k = _one_feature_each(case, found, rows, np.full((case.B, case.Hkv, case.Lk), of_key))
    return store(q, case.dtype), store(k, case.dtype), v


def equal_applies(case: Case, rule: Rule) -> bool:
    """Return whether keys of ``attention`` can be alike, and some query sees two."""
    return case.layer is None and not rule.pairs_keys and sees_two(case)


def draw_equal(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``: q and v as in an ordinary draw; the first key stands for all."""
    q, k, v = draw_activations(case, rule, entropy, index)
    return q, np.ascontiguousarray(np.broadcast_to(k[:, :, :1], k.shape)), v


LEAST_SUBNORMAL: dict[Dtype, int] = {"float64": -1074, "float32": -149, "bfloat16": -133, "float16": -24}
"""The exponents of the smallest numbers."""
SUBNORMAL_BITS: dict[Dtype, int] = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}
SUBNORMAL_SHARE = 0.25


def subnormal_applies(case: Case, rule: Rule) -> bool:
    """Return whether this is ``attention`` with an ordinary feature beside those with tiny numbers."""
    return case.layer is None and min(case.D, case.Dv) > 1 and sees_two(case)


def draw_subnormal(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``: an ordinary draw in which some numbers are tiny."""
    rng = stream(case, "subnormal", entropy, index)
    made = []
    for number, array in enumerate(draw_activations(case, rule, entropy, index)):
        wide = widen(array, case.dtype)
        tiny = rng.random(wide.shape) < SUBNORMAL_SHARE
        tiny[..., 0] = False
        if number > 0:
            tiny[..., -1] = True
        bits = SUBNORMAL_BITS[case.dtype]
        units = rng.integers(1, 1 << bits, wide.shape)
        units[..., -1] = rng.integers(1, 1 << bits // 2, wide.shape[:-1])
        numbers = np.ldexp(units.astype(np.float64), LEAST_SUBNORMAL[case.dtype]) * rng.choice(
            [-1.0, 1.0], wide.shape
        )
        made.append(store(np.where(tiny, numbers, wide), case.dtype))
    q, k, v = made
    return q, k, v


def large_values_apply(case: Case, rule: Rule) -> bool:
    """Return whether this is a forward pass of ``attention`` in float16 with many keys.

    Gradients have sums of products with such values, which right kernels may round to float16.
    """
    many = case.layer is None and case.Lk >= 16 and case.pass_ == "forward"
    return many and case.dtype == "float16" and sees_two(case)


def draw_large_values(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``: q and k as in an ordinary draw; large values."""
    q, k, v = draw_activations(case, rule, entropy, index)
    rng = stream(case, "large_values", entropy, index)
    sign = rng.choice([-1.0, 1.0], (case.B, case.Hkv, 1, case.Dv))
    return q, k, store(sign * LARGE_VALUES * (1 + rng.random(v.shape)), case.dtype)


def _large_sizes(case: Case, found: OneFeature) -> tuple[Wide, float, tuple[float, ...]] | None:
    """Return sizes of queries (H,), the size of keys and the factors on queries; None where float16
    overflows."""
    step = np.array([power_of_two(STEP[case.dtype] / abs(slope)) for slope in found.slopes])
    of_key = power_of_two(float(np.sqrt(step.min())))
    smallest = float(step.max()) * max(LEVELS)
    factors: tuple[float, ...] = FACTORS
    if case.dtype == "float16":
        factors = tuple(factor for factor in FACTORS if factor * smallest <= LARGEST_PRODUCT)
    return (step / of_key, of_key, factors) if factors else None


def _products(case: Case, rule: Rule) -> OneFeature | None:
    """Return how a feature scores where weights matter and the mask adds no numbers, else None."""
    if case.layer is not None or case.mask.adds or not sees_two(case):
        return None
    return one_feature(case, rule, 0)


def _feature(case: Case, rule: Rule, rng: np.random.Generator) -> OneFeature:
    """Draw the feature of k that scores, for a rule whose scores are products."""
    found = one_feature(case, rule, int(rng.integers(case.D)))
    assert found is not None
    return found


def _one_feature_each(case: Case, found: OneFeature, queries: Wide, keys: Wide) -> tuple[Wide, Wide]:
    """Return q and k, 0 but for the feature of each; queries: (B, H, Lq) or less, keys: (B, Hkv, Lk)."""
    q, k = np.zeros((case.B, case.H, case.Lq, case.D)), np.zeros((case.B, case.Hkv, case.Lk, case.D))
    _set_queries(q, found, queries)
    k[..., found.key] = keys
    return q, k


def _set_queries(q: Wide, found: OneFeature, sizes: Wide) -> None:
    sizes = np.broadcast_to(sizes, q.shape[:3])
    for head, feature in enumerate(found.queries):
        q[:, head, :, feature] = sizes[:, head]


def one_hot_applies(case: Case, rule: Rule) -> bool:
    """Return whether this is ``attention`` and some query sees two keys or more."""
    return case.layer is None and sees_two(case)


def draw_one_hot(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``. The place of the key changes with batch element, key/value head and draw.

    Queries that do not see the key are as in an ordinary draw.
    """
    q, k, v = (widen(array, case.dtype) for array in draw_activations(case, rule, entropy, index))
    rng = stream(case, "one_key", entropy, index)
    at = _places(case, rng, index)
    b, h = np.indices(at.shape)
    found = one_feature(case, rule, int(rng.integers(case.D)))
    sizes = None if found is None else _one_hot_sizes(case, found)
    value = rng.choice([-1.0, 1.0], (*at.shape, case.Dv)) * (2 + rng.random((*at.shape, case.Dv)))
    if found is None or sizes is None:
        v[:] = 0
    else:
        size, key = sizes
        if not found.alone:
            q = np.zeros_like(q)
        _set_queries(q, found, size[:, None])
        k[..., found.key] = 0
        k[b, h, at] = 0
        k[b, h, at, found.key] = key
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


def _one_hot_sizes(case: Case, found: OneFeature) -> tuple[Wide, float] | None:
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


def unlikely_values_apply(case: Case, rule: Rule) -> bool:
    """Return whether scores are products, the mask adds no numbers, and some query sees two keys or more."""
    found = _products(case, rule)
    return found is not None and found.linear


def draw_unlikely_values(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``."""
    rng = stream(case, "quiet", entropy, index)
    found = _feature(case, rule, rng)
    of_query, of_key = _unlikely_sizes(case, found)
    unlikely = _unlikely(case, rng)
    q, k = _one_feature_each(case, found, of_query[:, None], np.where(unlikely, -of_key, 0))
    signs = rng.choice([-1.0, 1.0], (case.B, case.Hkv, 1, case.Dv))
    v = signs * (1 + rng.random((case.B, case.Hkv, case.Lk, case.Dv))) * unlikely[..., None]
    return store(q, case.dtype), store(k, case.dtype), store(v, case.dtype)


def even_weights_apply(case: Case, rule: Rule) -> bool:
    """Return whether float16 is asked for, scores are plain products, and enough keys are seen."""
    if case.dtype != "float16" or case.Lk < EVEN_KEYS:
        return False
    found = _products(case, rule)
    return found is not None and found.linear and found.bias == 0


def draw_even_weights(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``: the keys that most queries see have the weight."""
    rng = stream(case, "even", entropy, index)
    found = _feature(case, rule, rng)
    of_query = np.array([power_of_two(EVEN_GAP / 8 / abs(slope)) for slope in found.slopes])
    chosen = np.argsort(-seen_counts(case), axis=-1, kind="stable")[:, None, :EVEN_KEYS]
    keys = np.full((case.B, case.Hkv, case.Lk), -8.0)
    np.put_along_axis(keys, np.broadcast_to(chosen, (case.B, case.Hkv, EVEN_KEYS)), 0.0, axis=-1)
    q, k = _one_feature_each(case, found, (of_query * np.sign(found.slopes))[:, None], keys)
    signs = rng.choice([-1.0, 1.0], (case.B, case.Hkv, 1, case.Dv))
    v = signs * (1 + rng.random((case.B, case.Hkv, case.Lk, case.Dv)))
    return store(q, case.dtype), store(k, case.dtype), store(v, case.dtype)


def light_keys_apply(case: Case, rule: Rule) -> bool:
    """Return whether this is a forward pass in half precision with many keys and plain products as scores."""
    if case.dtype not in ("bfloat16", "float16") or case.Lk < MANY_LIGHT or case.pass_ != "forward":
        return False
    found = _products(case, rule)
    return found is not None and found.linear and found.bias == 0 and found.same_slope is not None


def draw_light_keys(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index``. The heavy key is the first or the last of those that most queries see."""
    rng = stream(case, "light_keys", entropy, index)
    found = _feature(case, rule, rng)
    slope = found.same_slope
    assert slope is not None
    target = -float(np.log(LIGHT * EPS[case.dtype]))
    of_query, of_key = kindly_rounded(slope, target, case.dtype, LIGHT_WITHIN)
    heavy = np.zeros((case.B, case.Hkv, case.Lk), bool)
    for b, seen in enumerate(seen_counts(case)):
        keys = np.flatnonzero(seen == seen.max())
        for h in range(case.Hkv):
            heavy[b, h, keys[0 if (index + b * case.Hkv + h) % 2 == 0 else -1]] = True
    queries = np.full((case.H, 1), of_query * np.sign(slope))
    q, k = _one_feature_each(case, found, queries, np.where(heavy, 0, -of_key))
    signs = rng.choice([-1.0, 1.0], (case.B, case.Hkv, 1, case.Dv))
    sizes = 1 + rng.random((case.B, case.Hkv, case.Lk, case.Dv))
    v = signs * sizes * np.where(heavy, 1, -0.5)[..., None]
    return store(q, case.dtype), store(k, case.dtype), store(v, case.dtype)


def _unlikely_sizes(case: Case, found: OneFeature) -> tuple[Wide, float]:
    """Return the sizes of queries in their feature, (H,), and of unlikely keys in theirs."""
    depth, same = DEPTH[case.dtype], found.same_slope
    if same is None:
        # Drawn slopes differ by head; their products with powers of two are exact.
        sizes = np.array([power_of_two(depth / abs(slope)) for slope in found.slopes])
        return sizes * np.sign(found.slopes), 1.0
    if case.dtype in ("float32", "float64"):
        # Their limits allow rounded scores: 0.1 % is thousands of times as much.
        size = power_of_two(depth / abs(same))
        of_query = power_of_two(float(np.sqrt(size)))
        return np.full(case.H, of_query * np.sign(same)), size / of_query
    of_query, of_key = kindly_rounded(same, depth, case.dtype)
    return np.full(case.H, of_query * np.sign(same)), of_key


def _unlikely(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Choose the unlikely keys, (B, Hkv, Lk): half of the first keys, fewer of later ones.

    Every query that sees a key sees a likely one: its row would else be large and hide the errors of others.
    """
    seen = seen_counts(case)
    share = np.minimum(0.5, UNLIKELY / (1 + np.arange(case.Lk)))
    unlikely = rng.random((case.B, case.Hkv, case.Lk)) < share
    for b in range(case.B):
        by_rank = np.argsort(-seen[b], kind="stable")
        unlikely[b, :, by_rank[0]] = False
        unlikely[b, :, by_rank[1]] = True
    if not case.mask.needs_table and case.mask.band.before is None:
        return unlikely  # Each query that sees a key also sees the most seen one.
    for _, keep in kept_chunks(case, np.arange(case.Lq)):
        for b in range(case.B):
            kept = keep[b].astype(np.float32)
            likely_seen = kept @ ~unlikely[b].T
            for h in range(case.Hkv):
                lost = keep[b][(likely_seen[:, h] == 0) & (kept.sum(1) > 0)]
                _make_likely(unlikely[b, h], lost)
    return unlikely


def _make_likely(unlikely: np.ndarray, lost: np.ndarray) -> None:
    """Make keys likely, the most seen first, until each of the rows ``lost`` sees a likely one."""
    while len(lost):
        key = int(np.argmax(lost.sum(0)))
        unlikely[key] = False
        lost = lost[~lost[:, key]]
