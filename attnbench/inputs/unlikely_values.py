"""Stress inputs ``unlikely_values``: only unlikely keys have values, so that a wrong scale shows.

Most keys score 0 and have the value 0. A few score -s and have values of one sign in each feature, so the
output is about e^-s times a sum without cancellation. A scale that is wrong by 1 % changes the output by s %:
by 8 % in bfloat16, where a right kernel is off by one. The scores are exact, whatever a kernel scales and
rounds first (:func:`attnbench.inputs.one_feature.kindly_rounded`). The weights of likely keys are 1 before
division, so that their sum is exact in any order.

Records call this kind ``quiet``.
"""

from __future__ import annotations

import numpy as np

from attnbench.inputs.draw import Stored, Wide, store, stream
from attnbench.inputs.one_feature import (
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

DEPTH: dict[Dtype, float] = {"bfloat16": 8.0, "float16": 2.0, "float32": 1.0, "float64": 1.0}
"""s, as large as the dtype needs to show 1 % (0.1 % in float32). A larger s would hurt: in float16 a
weight of e^-8 / 1000 has lost half its bits, and in float32 the rounding of a score of 8 exceeds the
limits."""

UNLIKELY = 4.0
"""The number of unlikely keys among the first j, divided by ln(j), about. Early rows of a causal mask then
see some, and a long sum has few equal terms."""


def applies(case: Case, rule: Rule) -> bool:
    """Return whether scores are products, the mask adds no numbers, and some query sees two keys or more."""
    if case.layer is not None or case.mask.explicit == "float" or not sees_two(case):
        return False
    found = one_feature(case, rule, 0)
    return found is not None and found.linear


def draw(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw inputs number ``index``."""
    rng = stream(case, "quiet", entropy, index)
    found = one_feature(case, rule, int(rng.integers(case.D)))
    if found is None:
        raise ValueError(f"the scores of {rule.name} are not products of q and k")
    of_query, of_key = _sizes(case, found)
    unlikely = _unlikely(case, rng)
    q, k = np.zeros((case.B, case.H, case.Lq, case.D)), np.zeros((case.B, case.Hkv, case.Lk, case.D))
    for head in range(case.H):
        q[:, head, :, found.queries[head]] = of_query[head]
    k[..., found.key] = np.where(unlikely, -of_key, 0)
    signs = rng.choice([-1.0, 1.0], (case.B, case.Hkv, 1, case.Dv))
    v = signs * (1 + rng.random((case.B, case.Hkv, case.Lk, case.Dv))) * unlikely[..., None]
    return store(q, case.dtype), store(k, case.dtype), store(v, case.dtype)


def _sizes(case: Case, found: OneFeature) -> tuple[Wide, float]:
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
    if case.mask.window is None and case.mask.explicit is None:
        return unlikely  # Each query that sees a key also sees the most seen one.
    for rows, keep in kept_chunks(case, np.arange(case.Lq)):
        for b in range(case.B):
            kept = keep[b].astype(np.float32)
            likely_seen = kept @ ~unlikely[b].T
            for h in range(case.Hkv):
                lost = keep[b][(likely_seen[:, h] == 0) & (kept.sum(1) > 0)]
                _make_likely(unlikely[b, h], lost, len(rows))
    return unlikely


def _make_likely(unlikely: np.ndarray, lost: np.ndarray, rows: int) -> None:
    """Make keys likely, the most seen first, until each of the rows ``lost`` sees a likely one."""
    for _ in range(rows):
        if not len(lost):
            return
        key = int(np.argmax(lost.sum(0)))
        unlikely[key] = False
        lost = lost[~lost[:, key]]
