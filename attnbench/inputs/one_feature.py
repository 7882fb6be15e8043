"""Scores that one feature alone makes, so that their size is known; and the keys that queries see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Wide, draw_parameters, rounded, widen
from attnbench.masks import keep_rows, mask_heads
from attnbench.types.case import Case, Dtype
from attnbench.types.rule import Rule, of_head

if TYPE_CHECKING:
    from attnbench.types.rule import Array


MOST_PAIRS = 1 << 22
"""The most pairs that are counted at once; in larger cases some rows stand for all."""

FEWEST_ROWS = 64


def seen_counts(case: Case) -> NDArray[np.intp]:
    """Count the query rows that see each key, (B, Lk); in large cases evenly spaced rows only."""
    seen = np.zeros((case.B, case.Lk), np.intp)
    for _, keep in kept_chunks(case, _some_rows(case)):
        seen += keep.sum(1)
    return seen


def sees_two(case: Case) -> bool:
    """Return whether some query sees two keys, so that weights matter at all."""
    return any((keep.sum(2) > 1).any() for _, keep in kept_chunks(case, _some_rows(case)))


def kept_chunks(case: Case, rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Yield some rows at a time with the keys that they keep, (B, rows, Lk).

    Where heads have masks of their own, each row stands once for every head: (B, H · rows, Lk).
    """
    heads = mask_heads(case)
    at_once = max(1, MOST_PAIRS // (case.B * heads * case.Lk))
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        keep = keep_rows(case, some)
        shape = (case.B, heads, len(some), case.Lk)
        kept = np.broadcast_to(True if keep is None else keep, shape)
        yield some, kept.reshape(case.B, -1, case.Lk)


def _some_rows(case: Case) -> NDArray[np.intp]:
    count = min(case.Lq, max(FEWEST_ROWS, MOST_PAIRS // (case.B * mask_heads(case) * case.Lk)))
    return np.unique(np.linspace(0, case.Lq - 1, count).round().astype(np.intp))


TINY, LARGE = 2.0**-10, 2.0**5
MOST_FEATURES = 256
"""The most features of q and k that are tried; of more, evenly spaced ones."""
NOTHING = 1e-6
"""The share of a slope that counts as 0: the remainder of a score after adding and subtracting a bias."""
LOG2_E = 1.4426950408889634
LARGEST_PRODUCT = 30_000.0
"""The largest product of q and k in float16, whose largest number is 65504: kernels store products before
scaling."""


@dataclass(frozen=True)
class OneFeature:
    """The scores of q = a · e_f and k = b · e_g in every head: slopes · a · b while a · b is small.

    key: g, the same for all heads. queries: f, (H,). slopes: (H,), with their sign. others: (H,), the
    standard deviation of the scores of standard normal keys without g; for q = e_f, or for normal q where
    ``alone``. alone: whether f scores with g only, in all heads, so that other features of q and k add
    nothing. linear: whether scores grow with a · b without bound. bias: the most that positions alone add.
    """

    key: int
    queries: NDArray[np.intp]
    slopes: Wide
    others: Wide
    alone: bool
    linear: bool
    bias: float

    @property
    def same_slope(self) -> float | None:
        """The slope if all heads have the same one; else None."""
        return float(self.slopes[0]) if np.all(self.slopes == self.slopes[0]) else None


@lru_cache(maxsize=16)
def one_feature(case: Case, rule: Rule, key: int) -> OneFeature | None:
    """Return how feature ``key`` of k scores; None where scores are not products of q and k.

    Also None for a rule whose reference needs the lengths of its case.
    """
    if case.layer is not None or rule.pairs_keys:
        return None
    drawn = draw_parameters(case, rule).rule
    wide = {name: widen(array, case.dtype) for name, array in drawn.items()}
    heads = [of_head(case, rule, wide, h) for h in range(case.H)]
    try:
        found = [_one_head(case, rule, parameters, key) for parameters in heads]
    except (ValueError, IndexError):
        return None
    known = [head for head in found if head is not None]
    if len(known) < case.H:
        return None
    queries, slopes, others, alone, linear, bias = zip(*known, strict=True)
    return OneFeature(
        key, np.array(queries), np.array(slopes), np.array(others), all(alone), all(linear), max(bias)
    )


_Head = tuple[int, float, float, bool, bool, float]
"""The query's feature, slope, others, alone, linear and bias of one head; see :class:`OneFeature`."""


def _one_head(case: Case, rule: Rule, parameters: Mapping[str, Array], key: int) -> _Head | None:
    features = np.unique(np.append(np.linspace(0, case.D - 1, min(case.D, MOST_FEATURES)).astype(int), key))
    unit = np.zeros((len(features), case.D))
    unit[np.arange(len(features)), features] = 1
    of_key = unit[features == key]
    by_query = _slopes(rule, parameters, unit, of_key)
    if by_query is None:
        return None
    best = int(np.argmax(np.abs(by_query)))
    slope = float(by_query[best])
    if not np.isfinite(slope) or slope == 0:
        return None
    of_query = unit[[best]]
    by_key = _scores(rule, parameters, TINY * of_query, TINY * unit)[0] / TINY**2
    aside = (np.abs(by_query) > NOTHING * abs(slope)).sum() + (np.abs(by_key) > NOTHING * abs(slope)).sum()
    alone = features[best] == key and aside == 2
    large = _scores(rule, parameters, LARGE * of_query, LARGE * of_key)
    spread = abs(slope) if alone else float(np.sqrt(np.mean(np.square(by_key))))
    linear = bool(np.allclose(large, LARGE * LARGE * slope, rtol=1e-9, atol=0))
    others = spread * float(np.sqrt(case.D - 1))
    return int(features[best]), slope, others, bool(alone), linear, _bias(case, rule, parameters)


def power_of_two(value: float) -> float:
    """Return the power of two nearest to a positive number, by ratio."""
    return float(np.exp2(np.rint(np.log2(value))))


@lru_cache(maxsize=64)
def kindly_rounded(slope: float, target: float, dtype: Dtype, within: float = 0.15) -> tuple[float, float]:
    """Find (a, b), for q and for k, with slope · a · b near the target and almost free of rounding.

    Kernels scale queries, keys, both by the root, or their product. They round to the dtype each time, and
    some round the score. A scale that is off by such rounding can't be told from a wrong scale. Among numbers
    of eight bits there are pairs for which all of these ways are nearly exact. Both are positive; the product
    is off the target by a share of at most ``within``.
    """
    short = 1 + np.arange(128) / 128
    a, b = short[:, None], short[None, :]
    exact = abs(slope) * a * b
    power = np.exp2(np.rint(np.log2(target / exact)))
    low = np.exp2(np.floor(np.log2(power) / 2))
    a, b = a * low, b * (power / low)
    exact = abs(slope) * a * b
    scale, root, in_twos = abs(slope), np.sqrt(abs(slope)), abs(slope) * LOG2_E
    ways = (
        (rounded(a * b, dtype) * scale, 1.0),
        (rounded(a * scale, dtype) * b, 1.0),
        (a * rounded(b * scale, dtype), 1.0),
        (rounded(a * root, dtype) * rounded(b * root, dtype), 1.0),
        (rounded(a * in_twos, dtype) * b, LOG2_E),
    )
    ends = [score / unit for way, unit in ways for score in (way, rounded(way, dtype))]
    worst = np.max([np.abs(end / exact - 1) for end in ends], axis=0)
    worst = np.where(np.abs(exact / target - 1) <= within, worst, np.inf)
    i, j = np.unravel_index(int(np.argmin(worst)), worst.shape)
    return float(a[i, j]), float(b[i, j])


def _slopes(rule: Rule, parameters: Mapping[str, Array], unit: Wide, of_key: Wide) -> Wide | None:
    """Return the slopes of features of q with one of k; None where doubling one does not double the score."""
    q, k = TINY * unit, TINY * of_key
    once = _scores(rule, parameters, q, k)[:, 0]
    largest = np.abs(once).max()
    for twice in (_scores(rule, parameters, 2 * q, k), _scores(rule, parameters, q, 2 * k)):
        if not np.allclose(twice[:, 0], 2 * once, rtol=1e-6, atol=1e-9 * largest):
            return None
    return np.asarray(once / TINY**2)


def _scores(rule: Rule, parameters: Mapping[str, Array], q: Wide, k: Wide) -> Wide:
    """Return scores (rows, keys) minus those of zeros, which depend on positions alone."""
    positions = np.zeros(len(q))
    plain = rule.reference(q, k, parameters, positions)
    zeros = rule.reference(np.zeros_like(q), np.zeros_like(k), parameters, positions)
    return np.asarray(plain - zeros)


def _bias(case: Case, rule: Rule, parameters: Mapping[str, Array]) -> float:
    positions = np.array([0, case.Lq - 1], np.float64) + case.query_offset
    nothing = np.zeros((2, case.D)), np.zeros((case.Lk, case.D))
    return float(np.abs(rule.reference(*nothing, parameters, positions)).max())
