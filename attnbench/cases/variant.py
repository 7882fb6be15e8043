"""A small case beside a case: other lengths, drawn at random, in a precision that is high and cheap to judge.

It finds a backend that is right at known shapes only, and what half precision would hide.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

import numpy as np

from attnbench.masks import keep_rows
from attnbench.types.case import Case, Dtype, Layer
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, Padding
from attnbench.types.rule import Rule

SMALL = 256
"""A length up to this is varied about itself; a longer one gives way to a short one."""

EDGES = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Beside, at and past the sizes of kernels' blocks."""

MOST_HEADS, MOST_BATCHES = 2, 2
MOST_WORK = 2**26
"""Most B·H·Lq·Lk·D where lengths can be chosen: moments for an oracle, and for a slow backend."""

SEEDS = 10**9
"""Of which one is drawn: few enough digits to be read in an id."""

ATTEMPTS = 64


def near_case(
    case: Case,
    rule: Rule,
    backend_dtypes: Collection[Dtype],
    rng: np.random.Generator,
    *,
    square: bool = False,
) -> Case | None:
    """A case with the operation, rule, kind of mask, features, group and layer of another; None for none.

    Lengths differ from the case's own, and from each other unless it is a layer with one source (or
    ``square``,
    for a backend that can't do others): in the case's order where that has one. At least half of the queries
    that see a key see two, so that it tells something. At most two batch elements and two key/value heads; a
    seed of its own.

    backend_dtypes: what the backend can do. The near case has float32 if that is among them and the case
        isn't in float64, which is judged well but slowly; otherwise the case's dtype.
    """
    dtype: Dtype = "float32" if case.dtype != "float64" and "float32" in backend_dtypes else case.dtype
    Hkv, B = min(case.Hkv, MOST_HEADS), min(case.B, MOST_BATCHES)
    H = case.group * Hkv
    most_pairs = max(1, MOST_WORK // (B * H * case.D))
    for attempt in range(ATTEMPTS):
        # Later attempts stand on easier ground, for rules that want both lengths the same.
        same = square or case.is_self_attention or attempt > ATTEMPTS // 2
        Lq, Lk = _lengths(case, same, most_pairs, rng)
        try:
            near = replace(
                case,
                B=B,
                H=H,
                Hkv=Hkv,
                Lq=Lq,
                Lk=Lk,
                layer=_layer(case, H),
                mask=_mask(case, B, Lk, rng),
                dtype=dtype,
                cache="hot",
                seed=int(rng.integers(SEEDS)),
            )
        except BadCase:
            # The operation does not have such lengths.
            continue
        if rule.supports(near) is None and _tells_something(near) and (Lq, Lk) != (case.Lq, case.Lk):
            return near
    return None


def _lengths(case: Case, same: bool, most_pairs: int, rng: np.random.Generator) -> tuple[int, int]:
    """Of queries and keys; in order of size as the case's own are."""
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
        return 1  # One query is what decoding is, for which kernels have ways of their own.
    if own > SMALL:
        return int(rng.choice(EDGES)) if rng.random() < 0.75 else int(rng.integers(EDGES[0], EDGES[-1]))
    return int(rng.integers(max(2, own // 2), own + max(2, own // 2), endpoint=True))


def _layer(case: Case, H: int) -> Layer | None:
    """As wide as its heads together where the case's is: many layers can be no other."""
    if case.layer is None or case.layer.E != case.H * case.D:
        return case.layer
    return replace(case.layer, E=H * case.D)


def _mask(case: Case, B: int, Lk: int, rng: np.random.Generator) -> Mask:
    mask = case.mask
    window = mask.window
    if window is not None and window > 1 and window >= Lk:
        window = int(rng.integers(2, max(3, Lk)))
    return replace(mask, window=window, padding=_padding(mask.padding, B, Lk, rng))


def _padding(padding: Padding | None, B: int, Lk: int, rng: np.random.Generator) -> Padding | None:
    """Lengths: one is all keys, others fewer; one is none where the case has such."""
    if not isinstance(padding, tuple):
        return padding
    lengths = [int(length) for length in rng.integers(1, Lk, size=B, endpoint=True)]
    if B > 1:
        lengths[0] = Lk
        if 0 in padding:
            lengths[-1] = 0
    return tuple(int(length) for length in rng.permutation(lengths))


def _tells_something(case: Case) -> bool:
    """Whether half of the queries that see a key see two or more: of one, the output is its value."""
    keep = keep_rows(case, np.arange(case.Lq))
    if keep is None:
        return case.Lk > 1
    seen = keep.sum(-1)
    return bool(prod(seen.shape) and 2 * (seen > 1).sum() >= max(1, (seen > 0).sum()))
