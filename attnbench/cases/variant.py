"""Variant cases: small cases beside a case, with other lengths, in a precision that is high and cheap to
check.

They detect backends that are right at known shapes only, and errors that half precision hides. Their lengths
are of the classes that a search draws from (:mod:`attnbench.cases.classes`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

import numpy as np

from attnbench.cases.classes import AS_MANY, FEWER, KEYS, MORE, ONE, draw_queries
from attnbench.masks import keep_rows, kept_pairs
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case, Dtype, Layer
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask
from attnbench.types.problem import problems_of, with_lengths
from attnbench.types.rule import Rule

SMALL = tuple(word for word in KEYS if word not in ("one key", "a thousand keys or more"))
"""Classes of keys that a variant can have."""

MOST_HEADS, MOST_BATCHES = 2, 3
"""Three batch elements, since of two every order is its own inverse."""
MOST_WORK = 2**25
"""The largest B·H·Lq·Lk·D: quick for an oracle and for a slow backend."""
MOST_ELEMENTS = 2**22
"""The most elements that a broadcasting form of the scores holds: of ``additive`` there are D for each pair,
which take far longer than the products of as much work."""

SEEDS = 10**9
"""The range of the seed: few enough digits for an id."""

ATTEMPTS = 64

MOST_VARIED = 4
"""The most sequences of a variant batch."""


def variant_cases(
    case: Case, rule: Rule, backend_dtypes: Collection[Dtype], rng: np.random.Generator, count: int
) -> list[Case]:
    """Draw at most ``count`` variants of a case, with its operation, rule, kind of mask, features, group and
    layer.

    Each has its keys from another class than the others. Their lengths differ from those of the case. They
    also differ from each other, in the order of the case, unless a layer has one source, or the case has as
    many queries as keys: then some variants do. At least half of the queries that see a key see two, so that
    weights matter. Each window and each word of a structure keeps or drops a pair that it alone decides, if
    that can be drawn. A variant has at most three batch elements and two key/value heads, and a seed of its
    own. Of a batch the lengths of a few sequences vary, in the same storage.

    backend_dtypes: of the backend. The variants have float32 where the backend does and the case is not in
    float64, which is precise but slow to check; otherwise they have the dtype of the case.
    """
    random = Random(int(rng.integers(SEEDS)))
    classes = random.sample(SMALL, len(SMALL))
    found: list[Case] = []
    for attempt in range(ATTEMPTS):
        if len(found) == count:
            break
        # One that is not possible waits until the others were tried.
        word = classes.pop(0)
        # Later attempts use equal lengths, for rules that need them, and take words that decide nothing.
        later = attempt > ATTEMPTS // 2
        made = _variant(case, rule, backend_dtypes, (word, case.is_self_attention or later), random, rng)
        if made is None or not (later or words_matter(made)):
            classes.append(word)
        else:
            found.append(made)
        if not classes:
            break
    return found


def _variant(
    case: Case,
    rule: Rule,
    backend_dtypes: Collection[Dtype],
    lengths: tuple[str, bool],
    random: Random,
    rng: np.random.Generator,
) -> Case | None:
    dtype: Dtype = "float32" if case.dtype != "float64" and "float32" in backend_dtypes else case.dtype
    Hkv, B = min(case.Hkv, MOST_HEADS), min(case.B, MOST_BATCHES)
    H = case.group * Hkv
    if case.batch:
        return _batch_variant(
            replace(case, H=H, Hkv=Hkv, dtype=dtype, cache="hot"), rule, lengths[0], random, rng
        )
    drawn = _lengths(case.Lq, case.Lk, *lengths, random)
    if drawn is None:
        return None
    Lq, Lk = drawn
    pairs = B * H * Lq * Lk
    if pairs * case.D > MOST_WORK or pairs * rule.score_elements(case) > MOST_ELEMENTS:
        return None
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
        return None
    fits = rule.supports(variant) is None and weights_matter(variant) and (Lq, Lk) != (case.Lq, case.Lk)
    return variant if fits else None


def _batch_variant(
    case: Case, rule: Rule, word: str, random: Random, rng: np.random.Generator
) -> Case | None:
    """Draw a variant of a case with a batch, which has the other fields of the variant already."""
    own = list(dict.fromkeys(parse_batch(case.batch)))
    chosen = random.sample(own, min(MOST_VARIED, len(own)))
    # Sequences of equal lengths have neighbours too.
    chosen += random.choices(own, k=max(0, min(case.B, MOST_BATCHES) - len(chosen)))
    words = [word, *(random.choice(SMALL) for _ in chosen[1:])]
    drawn = [_varied(*each, one, random) for each, one in zip(chosen, words, strict=True)]
    lengths = tuple(each for each in drawn if each is not None)
    whole = [each for each in lengths if all(each)]
    pairs = case.H * sum(queries * keys for queries, keys in whole)
    if len(lengths) < len(chosen) or not 0 < pairs * case.D <= MOST_WORK:
        return None
    if pairs * rule.score_elements(case) > MOST_ELEMENTS:
        return None
    # Some words must fit the shortest sequence, and others matter in the longest alone.
    Lq, Lk = random.choice(whole)
    try:
        mask, seed = case.mask.smaller(len(lengths), Lq, Lk, rng), int(rng.integers(SEEDS))
        variant = with_lengths(replace(case, mask=mask, seed=seed), lengths)
    except BadCase:
        # No sequence has queries and keys, or the storage does not take such lengths.
        return None
    fits = rule.supports(variant) is None and variant.batch != case.batch
    return variant if fits and any(weights_matter(problem) for problem in problems_of(variant)) else None


def _varied(queries: int, keys: int, word: str, random: Random) -> tuple[int, int] | None:
    """Draw lengths of a sequence that are ordered by size as its own; a length of 0 stays."""
    if queries and keys:
        return _lengths(queries, keys, word, True, random)
    other = random.choice(KEYS[word])
    return (other if queries else 0), (other if keys else 0)


def _lengths(queries: int, keys: int, word: str, same: bool, random: Random) -> tuple[int, int] | None:
    """Draw the lengths of queries and keys, of a class of keys, ordered by size as those given."""
    Lk = random.choice(KEYS[word])
    if queries == keys and same:
        drawn = AS_MANY
    elif queries == 1:
        drawn = ONE  # One query is decoding, for which many kernels have a path of their own.
    elif queries == keys:
        drawn = random.choice((AS_MANY, FEWER, MORE))
    else:
        drawn = FEWER if queries < keys else MORE
    Lq = draw_queries(drawn, Lk, random)
    return None if Lq is None else (Lq, Lk)


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


def words_matter(case: Case) -> bool:
    """Return whether each window and word of a structure decides about a pair, which no other word does."""
    problems = problems_of(case)
    parts = [part for part in case.mask.parts() if part.window is not None or part.more]
    return all(any(_decides(part, problem) for problem in problems) for part in parts)


def _decides(part: Mask, case: Case) -> bool:
    # A word alone drops pairs or keeps more, so their number tells.
    return kept_pairs(case) != kept_pairs(replace(case, mask=case.mask.without(part)))
