"""Values on the unlikely keys: the output is small, and each per cent of a wrong scale changes it by several.

Most keys score 0 and have the value 0; a few score -s and have values of one sign in each feature, so the
output is about e^-s times a sum that nothing cancels in. A scale that is wrong by 1 % changes it by s %: 8 %
in bfloat16, where a right kernel is off by one. The scores are exact, whatever a kernel scales and rounds
first (:func:`attnbench.inputs.one_feature.kindly_rounded`), and the weights of likely keys are 1 before they
are divided, so that their sum is exact in any order.
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
"""s: as deep as the dtype needs to show 1 % (0.1 % in float32), and no deeper. In float16 a weight of e^-8 /
1000 would have lost half its bits; in float32 a rounded score of 8 is off by more than the limits give."""

UNLIKELY = 4.0
"""Of the keys up to number j, about so many times ln(j) are unlikely: early rows of a causal mask see some,
and so few equal terms leave no error in a long sum."""


def applies(case: Case, rule: Rule) -> bool:
    """Where scores are products, the mask adds no numbers, and some queries see two keys or more."""
    if case.layer is not None or case.mask.explicit == "float" or not sees_two(case):
        return False
    found = one_feature(case, rule, 0)
    return found is not None and found.linear


def draw_quiet(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw number ``index``."""
    rng = stream(case, "quiet", entropy, index)
    found = one_feature(case, rule, int(rng.integers(case.D)))
    if found is None:
        raise ValueError(f"the scores of {rule.name} are no products of q and k")
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
    """What queries have in their feature, (H,), and unlikely keys in theirs."""
    depth, same = DEPTH[case.dtype], found.same_slope
    if same is None:
        # Of slopes that are drawn, as the numbers of a matrix are, products with powers of two are exact.
        sizes = np.array([power_of_two(depth / abs(slope)) for slope in found.slopes])
        return sizes * np.sign(found.slopes), 1.0
    if case.dtype in ("float32", "float64"):
        # Their limits leave room for rounded scores: 0.1 % is thousands of times as much.
        size = power_of_two(depth / abs(same))
        of_query = power_of_two(float(np.sqrt(size)))
        return np.full(case.H, of_query * np.sign(same)), size / of_query
    of_query, of_key = kindly_rounded(same, depth, case.dtype)
    return np.full(case.H, of_query * np.sign(same)), of_key


def _unlikely(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Which keys are unlikely, (B, Hkv, Lk): half of the first, ever fewer later, never all that a query
    sees.

    The row of a query that saw no others would be large and say nothing, and hide the rest.
    """
    seen = seen_counts(case)
    share = np.minimum(0.5, UNLIKELY / (1 + np.arange(case.Lk)))
    unlikely = rng.random((case.B, case.Hkv, case.Lk)) < share
    for b in range(case.B):
        by_rank = np.argsort(-seen[b], kind="stable")
        unlikely[b, :, by_rank[0]] = False
        unlikely[b, :, by_rank[1]] = True
    if case.mask.window is None and case.mask.explicit is None:
        return unlikely  # Who sees any key sees the one that most see.
    for rows, keep in kept_chunks(case, np.arange(case.Lq)):
        for b in range(case.B):
            kept = keep[b].astype(np.float32)
            likely_seen = kept @ ~unlikely[b].T
            for h in range(case.Hkv):
                lost = keep[b][(likely_seen[:, h] == 0) & (kept.sum(1) > 0)]
                _make_likely(unlikely[b, h], lost, len(rows))
    return unlikely


def _make_likely(unlikely: np.ndarray, lost: np.ndarray, rows: int) -> None:
    """Make keys likely, those that most rows see first, until each of the rows ``lost`` sees one."""
    for _ in range(rows):
        if not len(lost):
            return
        key = int(np.argmax(lost.sum(0)))
        unlikely[key] = False
        lost = lost[~lost[:, key]]
