"""Variant cases: a small case beside a case, with other lengths, in a precision that is high and cheap to
check.

A variant detects backends that are right at known shapes only, and errors that half precision hides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from attnbench.masks import keep_rows
from attnbench.types.case import Case, Dtype, Layer
from attnbench.types.errors import BadCase
from attnbench.types.rule import Rule

SMALL = 256
"""The largest length that is varied around itself; a longer one is replaced by a short one."""

EDGES = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Lengths beside, at and past the block sizes of kernels."""

MOST_HEADS, MOST_BATCHES = 2, 3
"""Three batch elements, since of two every order is its own inverse."""
MOST_WORK = 2**26
"""The largest B·H·Lq·Lk·D where lengths can be chosen: quick for an oracle and for a slow backend."""

SEEDS = 10**9
"""The range of the seed: few enough digits for an id."""

ATTEMPTS = 64


def variant_case(
    case: Case, rule: Rule, backend_dtypes: Collection[Dtype], rng: np.random.Generator
) -> Case | None:
    """Draw a variant of a case, with its operation, rule, kind of mask, features, group and layer; or None.

    Its lengths differ from those of the case. They also differ from each other, in the order of the case,
    unless a layer has one source. At least half of the queries that see a key see two, so that weights
    matter. It has at most three batch elements and two key/value heads, and a seed of its own.

    backend_dtypes: of the backend. The variant has float32 where the backend does and the case is not in
    float64, which is precise but slow to check; otherwise it has the dtype of the case.
    """
    dtype: Dtype = "float32" if case.dtype != "float64" and "float32" in backend_dtypes else case.dtype
    Hkv, B = min(case.Hkv, MOST_HEADS), min(case.B, MOST_BATCHES)
    H = case.group * Hkv
    most_pairs = max(1, MOST_WORK // (B * H * case.D))
    for attempt in range(ATTEMPTS):
        # Later attempts use equal lengths, for rules that need them.
        same = case.is_self_attention or attempt > ATTEMPTS // 2
        Lq, Lk = _lengths(case, same, most_pairs, rng)
        try:
            variant = replace(
                case,
                B=B,
                H=H,
                Hkv=Hkv,
                Lq=Lq,
                Lk=Lk,
                layer=_layer(case, H),
                mask=case.mask.smaller(B, Lq, Lk, rng),
                dtype=dtype,
                cache="hot",
                seed=int(rng.integers(SEEDS)),
            )
        except BadCase:
            # The operation does not have such lengths.
            continue
        if rule.supports(variant) is None and weights_matter(variant) and (Lq, Lk) != (case.Lq, case.Lk):
            return variant
    return None


def _lengths(case: Case, same: bool, most_pairs: int, rng: np.random.Generator) -> tuple[int, int]:
    """Draw the lengths of queries and keys, ordered by size as those of the case."""
    Lq, Lk = _length(case.Lq, rng), _length(case.Lk, rng)
    same = same and case.Lq == case.Lk
    if same:
        Lk = Lq
    elif (Lq < Lk) != (case.Lq < case.Lk) and case.Lq != case.Lk and min(case.Lq, case.Lk) > 1:
        Lq, Lk = Lk, Lq
    if Lq == Lk and not same:
        Lk += 1 if case.Lq <= case.Lk else -1
    Lk = max(1, Lk)
    if Lq * Lk > most_pairs:
        shrink = np.sqrt(most_pairs / (Lq * Lk))
        least = min(2, Lq)
        Lq, Lk = max(least, int(Lq * shrink)), max(least, int(Lk * shrink))
        Lk += 1 if Lq == Lk and not same else 0
    return Lq, Lk


def _length(own: int, rng: np.random.Generator) -> int:
    if own == 1:
        return 1  # One query is decoding, for which many kernels have a path of their own.
    if own > SMALL:
        return int(rng.choice(EDGES)) if rng.random() < 0.75 else int(rng.integers(EDGES[0], EDGES[-1]))
    return int(rng.integers(max(2, own // 2), own + max(2, own // 2), endpoint=True))


def _layer(case: Case, H: int) -> Layer | None:
    """Return the layer, as wide as its heads together where that holds for the case."""
    if case.layer is None or case.layer.E != case.H * case.D:
        return case.layer
    return replace(case.layer, E=H * case.D)


def weights_matter(case: Case) -> bool:
    """Return whether half of the queries with a key see two or more; with one key the output is its value."""
    keep = keep_rows(case, np.arange(case.Lq))
    if keep is None:
        return case.Lk > 1
    seen = keep.sum(-1)
    return bool(2 * (seen > 1).sum() >= max(1, (seen > 0).sum()))
