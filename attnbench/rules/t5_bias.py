"""T5's bias: a dot product plus a learned number for each bucket of distances."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from attnbench.rules.dot import dot_products
from attnbench.types.case import Case
from attnbench.types.rule import Constant, DotForm, Parameter, Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array

BUCKETS, DISTANCE = 32, 128


def first_distances(buckets: int, distance: int) -> list[int]:
    """Return the smallest distance in each of so many buckets of one side, in ascending order.

    Distances below half = buckets // 2 have a bucket each. A longer distance n has the bucket
    half + ⌊log(n / half) / log(distance / half) · (buckets - half)⌋, at most the last.
    """
    half = buckets // 2
    longer, ratio = buckets - half, max(1.0, distance / half)
    # Less a little, since a power that is a whole number, as 8 · 16^(2 / 8), may be rounded up.
    return [*range(half), *(ceil(half * ratio ** (place / longer) - 1e-9) for place in range(longer))]


def _sides(case: Case) -> int:
    return 1 if any(word.part == "causal" for word in case.mask.words) else 2


def _reference(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    table = parameters["bias"]
    one_sided, of_side = parameters["sides"] == 1, int(parameters["buckets"] / parameters["sides"])
    after = np.arange(len(k)) - positions[:, None]
    distance = np.maximum(-after, 0) if one_sided else np.abs(after)
    firsts = first_distances(of_side, int(parameters["distance"]))
    bucket = np.searchsorted(firsts, distance, side="right") - 1
    if not one_sided:
        bucket += of_side * (after > 0)
    # A check also asks for the answer with more buckets than the table has.
    return np.asarray(q @ k.T + table[np.minimum(bucket, len(table) - 1)])


def _bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    import torch

    table = parameters["bias"]
    one_sided = case.constant("sides", _sides(case)) == 1
    of_side = int(case.constant("buckets", BUCKETS)) // (1 if one_sided else 2)
    firsts = torch.tensor(
        first_distances(of_side, int(case.constant("distance", DISTANCE))), device=table.device
    )
    # So that the gradient of a bucket, a sum over many pairs, is rounded once.
    exact = torch.float64 if case.dtype == "float64" else torch.float32

    def bias(rows: slice, cols: slice) -> Tensor:
        queries = torch.arange(rows.start, rows.stop, device=table.device) + case.query_offset
        after = torch.arange(cols.start, cols.stop, device=table.device) - queries[:, None]
        distance = (-after).clamp_min(0) if one_sided else after.abs()
        bucket = torch.bucketize(distance, firsts, right=True) - 1
        if not one_sided:
            bucket = bucket + of_side * (after > 0)
        return table.to(exact)[:, bucket.clamp_max(table.shape[1] - 1)].to(table.dtype)

    return Scoring(dot=DotForm(), bias=bias)


def _draw(rng: np.random.Generator, H: int, shape: tuple[int, ...]) -> Array:
    # Scores deviate by √D, which is 8 for heads of T5: smaller numbers would hardly change the weights.
    return 2 * rng.standard_normal((H, *shape))


def _supports(case: Case) -> str | None:
    buckets, distance = case.constant("buckets", BUCKETS), case.constant("distance", DISTANCE)
    sides = case.constant("sides", _sides(case))
    for name, value in (("buckets", buckets), ("distance", distance), ("sides", sides)):
        if value % 1:
            return f"{name} = {value:g}: give a whole number"
    if buckets % 2:
        return f"buckets = {buckets:g}: give an even number"
    if distance <= (alone := buckets // sides // 2):
        return f"distance = {distance:g}: give more than {alone:g}; shorter ones have buckets of their own"
    return None


T5_BIAS = Rule(
    name="t5_bias",
    formula="q·k + bias[bucket of j − p], p the query's position; far keys share a bucket",
    source="Raffel et al. 2020, Exploring the Limits of Transfer Learning (T5), section 2.1, and its code",
    reference=_reference,
    bind=_bind,
    inner=dot_products,
    laws=("flip_features", "scale_features"),
    parameters=lambda case: (Parameter("bias", (int(case.constant("buckets", BUCKETS)),), _draw),),
    supports=_supports,
    constants=(
        Constant(
            name="buckets",
            meaning="how many, of both sides together",
            least=4,
            most=512,
            default=BUCKETS,
            example=8,
        ),
        Constant(
            name="distance",
            meaning="this and all longer distances share the last bucket of their side",
            least=2,
            most=100_000,
            default=DISTANCE,
            example=20,
        ),
        Constant(
            name="sides",
            meaning="2: later keys have half of the buckets; 1: they have that of distance 0, as with causal",
            least=1,
            most=2,
            default=_sides,
            example=1,
        ),
    ),
)
