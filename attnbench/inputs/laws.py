"""Changes of the inputs of ``attention`` whose change of the exact output is known, without new rounding.

They make inputs that no backend has seen of inputs that are solved already: the change is undone on the
output, and what is left is compared as ever. All of them leave every product of q and k as it is, or only
move it elsewhere, so a few independent draws must take turns with them.

A :class:`Change` holds them all at once, each of them possibly nothing; they apply in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.rounding import Stored, Wide, store, widen
from attnbench.types.case import Case
from attnbench.types.rule import Rule

Order = NDArray[np.intp]
Factors = NDArray[np.float64]
Triple = tuple[Stored, Stored, Stored]

LARGEST_EXPONENT = 2
"""Values of v grow by up to 2^2: far from the largest number of float16, which standard normal values are."""


@dataclass(frozen=True)
class Change:
    """One composition of laws. What is in place ``i`` afterwards was in place ``order[i]`` before.

    batches: (B,). heads: (Hkv,), the query heads of each go with it. queries: (Lq,). signs: (D,), of
    features of q and k both. moved: (D,), powers of two that features of q get and those of k lose.
    values: (Dv,), signed powers of two that features of v are multiplied by, as those of the output are.
    """

    batches: Order
    heads: Order
    queries: Order
    signs: Factors
    moved: Factors
    values: Factors


def draw_change(case: Case, rule: Rule, rng: np.random.Generator) -> Change:
    """A composition of all laws that hold for a case, each drawn at random.

    Batch elements change places where the mask is the same for all of them, heads where the rule has no
    parameters (those belong to heads), queries where the mask is the same for all and the rule says that it
    may be. What is done to features of q and k is also for the rule to say (``Rule.laws``).

    Raises:
        ValueError: the case is no ``attention``: a layer has hardly any such law.
    """
    if case.layer is not None:
        raise ValueError("laws are of the operation attention")
    mask, laws = case.mask, rule.laws
    same_batches = mask.padding is None and mask.explicit is None
    same_queries = mask.causal is None and mask.window is None and mask.explicit is None
    return Change(
        batches=_order(rng, case.B, same_batches),
        heads=_order(rng, case.Hkv, not rule.parameters(case)),
        queries=_order(rng, case.Lq, same_queries and "permute_queries" in laws),
        signs=_signs(rng, case.D) if "flip_features" in laws else np.ones(case.D),
        moved=np.exp2(rng.integers(-1, 2, case.D)) if "scale_features" in laws else np.ones(case.D),
        values=_signs(rng, case.Dv) * np.exp2(rng.integers(0, LARGEST_EXPONENT + 1, case.Dv)),
    )


def changed(case: Case, change: Change, inputs: Triple) -> Triple:
    """The inputs after the change: q (B, H, Lq, D), k (B, Hkv, Lk, D), v (B, Hkv, Lk, Dv), as stored.

    A feature of which a number would lose a bit, being among the smallest that its dtype has, moves nothing.
    """
    q, k, v = (widen(array, case.dtype) for array in inputs)
    q = q[change.batches][:, _query_heads(case, change.heads)][:, :, change.queries]
    k, v = k[change.batches][:, change.heads], v[change.batches][:, change.heads]
    exact = _exact(q, change.moved, case) & _exact(k, 1 / change.moved, case)
    moved = np.where(exact, change.moved, 1.0)
    return (
        store(q * (change.signs * moved), case.dtype),
        store(k * (change.signs / moved), case.dtype),
        store(v * change.values, case.dtype),
    )


def undone(case: Case, change: Change, output: Wide) -> Wide:
    """The output (B, H, Lq, Dv) for the inputs before the change, from that for those after it."""
    before = np.empty_like(output)
    heads = _query_heads(case, change.heads)
    before[np.ix_(change.batches, heads, change.queries)] = output / change.values
    return before


def _order(rng: np.random.Generator, count: int, holds: bool) -> Order:
    return rng.permutation(count) if holds else np.arange(count)


def _signs(rng: np.random.Generator, count: int) -> Factors:
    return rng.choice([-1.0, 1.0], count)


def _query_heads(case: Case, heads: Order) -> Order:
    return (heads[:, None] * case.group + np.arange(case.group)).ravel()


def _exact(values: Wide, factors: Factors, case: Case) -> NDArray[Any]:
    """By feature, whether all its numbers can be had back from their products with a power of two: (D,)."""
    kept = widen(store(values * factors, case.dtype), case.dtype) / factors == values
    return np.asarray(kept.reshape(-1, kept.shape[-1]).all(axis=0))
