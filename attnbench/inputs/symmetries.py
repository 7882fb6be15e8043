"""Symmetries: transforms of the inputs whose effect on the exact output is known, without new rounding.

They make inputs that no backend has seen from inputs that are solved already. The transform is inverted on
the output, and the result is compared as usual. All of them keep every product of q and k, or only move it
elsewhere, so that a few independent draws must take turns.

A :class:`Transform` combines all of them; each may do nothing, and their order does not matter. In
``multihead`` features belong to projections, so only positions and signs of whole batch elements change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Stored, Wide, rounded, widen
from attnbench.types.case import Case
from attnbench.types.rule import Rule

Order = NDArray[np.intp]
Factors = NDArray[np.float64]
Triple = tuple[Stored, Stored, Stored]

LARGEST_EXPONENT = 2
"""The largest exponent of a factor on v: 2^2 keeps standard normal values far below the float16 maximum."""


@dataclass(frozen=True)
class Transform:
    """One transform of the inputs. Place ``i`` afterwards has what was at ``order[i]`` before.

    batches: (B,). heads: (Hkv,); the query heads of each go with it. queries: (Lq,). keys: (Lk,), with their
    values. signs: (D,), of features of both q and k. moved: (D,), powers of two that features of q are
    multiplied by and those of k divided by. values: (Dv,), signed powers of two on features of v and of the
    output. mirrored: (B,), signs of whole batch elements of a layer and of its output.
    """

    batches: Order
    heads: Order
    queries: Order
    keys: Order
    signs: Factors
    moved: Factors
    values: Factors
    mirrored: Factors


def identity(case: Case) -> Transform:
    """Return the transform that changes nothing."""
    return Transform(
        np.arange(case.B), np.arange(case.Hkv), np.arange(case.Lq), np.arange(case.Lk),
        np.ones(case.D), np.ones(case.D), np.ones(case.Dv), np.ones(case.B),
    )  # fmt: skip


def draw_transform(case: Case, rule: Rule, rng: np.random.Generator) -> Transform:
    """Draw a combination of all symmetries that a case has, each at random.

    Batch elements are permuted where they share one mask; heads too, where the rule has no parameters.
    Queries and keys are permuted where they share one mask and the rule ignores positions; in self-attention
    the two have one order. ``Rule.laws`` says what features of q and k allow. A layer without biases maps -x
    to minus its output if the rule lets q and k change signs together.

    Permuting keys is exact except for the order of summation.
    """
    mask, laws = case.mask, rule.laws
    same_batches = mask.padding is None and mask.explicit is None
    same_queries = mask.causal is None and mask.window is None and mask.explicit is None
    free_queries = same_queries and "permute_queries" in laws
    free_keys = free_queries and mask.padding is None and not rule.pairs_keys
    layer = case.layer
    if case.is_self_attention:
        free_queries = free_keys
    batches, queries = _order(rng, case.B, same_batches), _order(rng, case.Lq, free_queries)
    keys = queries if case.is_self_attention else _order(rng, case.Lk, free_keys)
    if layer is not None:
        mirrors = not layer.bias and "flip_features" in laws
        mirrored = _signs(rng, case.B) if mirrors else np.ones(case.B)
        return replace(identity(case), batches=batches, queries=queries, keys=keys, mirrored=mirrored)
    return Transform(
        batches=batches,
        heads=_order(rng, case.Hkv, not rule.parameters(case) and not mask.per_head),
        queries=queries,
        keys=keys,
        signs=_signs(rng, case.D) if "flip_features" in laws else np.ones(case.D),
        moved=np.exp2(rng.integers(-1, 2, case.D)) if "scale_features" in laws else np.ones(case.D),
        values=_signs(rng, case.Dv) * np.exp2(rng.integers(0, LARGEST_EXPONENT + 1, case.Dv)),
        mirrored=np.ones(case.B),
    )


def settled(case: Case, transform: Transform, inputs: Triple) -> Transform:
    """Return the part of a transform that these inputs allow without new rounding.

    A feature is not scaled where one of its numbers, among the smallest of the dtype, would lose a bit.
    """
    if (transform.moved == 1).all():
        return transform
    q, k = (_working(array, case) for array in inputs[:2])
    exact = _exact(q, transform.moved, case) & _exact(k, 1 / transform.moved, case)
    return replace(transform, moved=np.where(exact, transform.moved, 1.0))


@dataclass(frozen=True)
class _Effect:
    """The effect of a transform on one array: the order along each of its first axes, then factors."""

    orders: tuple[Order, ...]
    factors: Factors

    def do(self, array: Stored, case: Case) -> Stored:
        return _stored(_working(array[np.ix_(*self.orders)], case), self.factors, case)


def _effect(case: Case, transform: Transform, name: str, length: int) -> _Effect:
    """Return the effect on q, k, v, the output ``out``, or a source of a layer by its name.

    length: of the axis of places. Places stay where it is not that of their order: a rule that pairs keys
    with queries gives k the length of q.
    """
    places = transform.queries if name in ("q", "out", "x", "queries") else transform.keys
    places = places if len(places) == length else np.arange(length)
    if case.layer is not None:
        return _Effect((transform.batches, places), transform.mirrored[:, None, None])
    heads = _query_heads(case, transform.heads) if name in ("q", "out") else transform.heads
    factors = {
        "q": transform.signs * transform.moved,
        "k": transform.signs / transform.moved,
        "v": transform.values,
        "out": transform.values,
    }
    return _Effect((transform.batches, heads, places), factors[name])


def apply(case: Case, transform: Transform, inputs: Triple) -> Triple:
    """Apply a transform to stored inputs; shapes stay, and an array that is given twice stays one array.

    transform: :func:`settled` for these inputs.
    """
    names = ("q", "k", "v") if case.layer is None else ("queries", "keys", "values")
    made: dict[int, Stored] = {}
    for name, array in zip(names, inputs, strict=True):
        if id(array) not in made:
            made[id(array)] = _effect(case, transform, name, array.shape[-2]).do(array, case)
    a, b, c = inputs
    return made[id(a)], made[id(b)], made[id(c)]


def apply_to_upstream(case: Case, transform: Transform, upstream: Stored) -> Stored:
    """Apply a transform to the gradient of the output; its product with the output stays the same."""
    effect = _effect(case, transform, "out", case.Lq)
    return replace(effect, factors=1 / effect.factors).do(upstream, case)


def invert_gradient(case: Case, transform: Transform, name: str, gradient: Wide) -> Wide:
    """Invert a transform on a gradient in float64.

    name: of the tensor, as :func:`attnbench.check.gradients.source_names` has it. Tensors that are not inputs
    have the same gradient before and after.
    """
    if name not in ("q", "k", "v", "x", "queries", "context", "keys", "values"):
        return gradient
    effect = _effect(case, transform, name, gradient.shape[-2])
    return (gradient * effect.factors)[np.ix_(*map(np.argsort, effect.orders))]


def invert(case: Case, transform: Transform, output: Stored, rows: Order | None = None) -> Wide:
    """Invert a transform on an output, stored or in float64; returns float64.

    Shape (B, H, Lq, Dv), or (B, Lq, width) of a layer. rows: query rows before the transform; R of them
    replace Lq.
    """
    effect = _effect(case, transform, "out", case.Lq)
    *others, queries = map(np.argsort, effect.orders)
    queries = queries if rows is None else queries[rows]
    # Rows are taken first, because fewer of them are then widened.
    taken = _widened(output[np.ix_(*others, queries)], case)
    factors = effect.factors if case.layer is None else effect.factors[others[0]]
    return taken / factors


def place_after(case: Case, transform: Transform, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place in the transformed output of the element at ``index`` of the original one."""
    orders = _effect(case, transform, "out", case.Lq).orders
    moved = (int(np.argsort(order)[i]) for order, i in zip(orders, index, strict=False))
    return (*moved, index[-1])


def _order(rng: np.random.Generator, count: int, holds: bool) -> Order:
    return rng.permutation(count) if holds else np.arange(count)


def _signs(rng: np.random.Generator, count: int) -> Factors:
    return rng.choice([-1.0, 1.0], count)


def _query_heads(case: Case, heads: Order) -> Order:
    return (heads[:, None] * case.group + np.arange(case.group)).ravel()


def _widened(array: Stored, case: Case) -> Wide:
    return array if array.dtype.itemsize >= np.dtype(np.float64).itemsize else widen(array, case.dtype)


def _working(stored: Stored, case: Case) -> NDArray[Any]:
    """Return numbers that signs and powers of two can multiply exactly: float32 where that suffices."""
    if case.dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if case.dtype == "float16" else stored


def _stored(values: NDArray[Any], factors: Factors, case: Case) -> Stored:
    """Return products, which the dtype of the case holds exactly, as stored."""
    product: NDArray[Any] = values * factors.astype(values.dtype)
    if case.dtype == "bfloat16":
        return (product.view(np.uint32) >> 16).astype(np.uint16)
    return product.astype(np.float16) if case.dtype == "float16" else product


def _exact(values: NDArray[Any], factors: Factors, case: Case) -> NDArray[np.bool_]:
    """Return by feature, (D,), whether all products with a power of two can be undone exactly."""
    wide = values.astype(np.float64) if case.dtype != "float32" else values
    used = factors.astype(wide.dtype)
    with np.errstate(under="ignore", over="ignore"):
        kept = rounded(wide * used, case.dtype).astype(wide.dtype) / used == wide
    return np.asarray(kept.reshape(-1, kept.shape[-1]).all(axis=0))
