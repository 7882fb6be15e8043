"""Symmetries: changes of the inputs whose effect on the exact answer is known, without new rounding.

They make inputs that no backend has seen from inputs that are solved already. The change is undone on the
answer, and the result is compared as usual. All of them keep every product of q and k, or only move it
elsewhere, so that a few independent draws must take turns.

A :class:`Change` combines all of them; each may do nothing, and their order does not matter. In ``multihead``
features belong to projections, so only positions and signs of whole batch elements change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Stored, Wide, rounded, widen
from attnbench.types.case import Case, Dtype
from attnbench.types.encoding import encoding_of, is_encoded
from attnbench.types.rule import Rule

Order = NDArray[np.intp]
Factors = NDArray[np.float64]

LARGEST_EXPONENT = 2
"""The largest exponent of a factor on v: 2^2 keeps standard normal values far below the float16 maximum."""


@dataclass(frozen=True)
class Change:
    """One change of the inputs, by the letters of axes and by the names of tensors."""

    orders: Mapping[str, Order] = field(default_factory=dict)
    """By the letter of an axis: place ``i`` afterwards has what was at ``order[i]`` before."""
    factors: Mapping[str, tuple[str, Factors]] = field(default_factory=dict)
    """By the name of a tensor: the letter of an axis, and signed powers of two along it, by the place
    afterwards. Tensors that are not named keep their numbers."""
    together: bool = False
    """Whether all places of an axis keep their powers of two, or none does."""

    def do(self, name: str, axes: str, array: Stored, dtype: Dtype) -> Stored:
        """Return a stored tensor of that name, with these axes, as it is after the change."""
        moved = _ordered(array, axes, self.orders)
        if name not in self.factors:
            return moved
        letter, factors = self.factors[name]
        return _stored(_working(moved, dtype), _along(factors, letter, axes), dtype)

    def undo(
        self, name: str, axes: str, array: Stored, dtype: Dtype, *, power: int = 1, rows: Order | None = None
    ) -> Wide:
        """Return a part of an answer to changed inputs as it was without the change, in float64.

        power: 1 for a tensor that grows with the factors of its name, -1 for its gradient, which shrinks.
        rows: places of the axis ``i`` before the change; all if None. They are taken first, because fewer are
        then widened.
        """
        back = {letter: np.argsort(order) for letter, order in self.orders.items() if letter in axes}
        orders = dict(back)
        if rows is not None:
            orders["i"] = orders["i"][rows] if "i" in orders else rows
        taken = _widened(_ordered(array, axes, orders), dtype)
        if name not in self.factors:
            return taken
        letter, factors = self.factors[name]
        factors = factors[orders[letter]] if letter in orders else factors
        return taken / _along(factors, letter, axes) ** power

    def place(self, axes: str, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the place after the change of the element that was at ``index``."""
        pairs = zip(axes, index, strict=True)
        return tuple(int(np.argsort(self.orders[a])[i]) if a in self.orders else i for a, i in pairs)

    def settled(self, inputs: Mapping[str, Stored], dtype: Dtype, axes: Mapping[str, str]) -> Change:
        """Return the part of this change that these inputs allow without new rounding.

        Where a number among the smallest of the dtype would lose a bit, the factors at its place keep only
        their signs, in all tensors with factors along the same axis.

        inputs, axes: of the tensors by name.
        """
        exact: dict[str, NDArray[np.bool_]] = {}
        for name, (letter, factors) in self.factors.items():
            # Only a factor below 1 can lose bits.
            if name in inputs and (np.abs(factors) < 1).any():
                kept = _exact(_working(inputs[name], dtype), factors, axes[name].index(letter), dtype)
                kept = np.full_like(kept, kept.all()) if self.together else kept
                exact[letter] = exact.get(letter, True) & kept
        return replace(
            self,
            factors={
                name: (letter, np.where(exact.get(letter, True), factors, np.sign(factors)))
                for name, (letter, factors) in self.factors.items()
            },
        )


NO_CHANGE = Change()
"""The change that changes nothing."""


def draw_change(case: Case, rule: Rule, rng: np.random.Generator) -> Change:
    """Draw a combination of all symmetries that attention has in a case, each at random.

    Batch elements are permuted where they share one mask; heads too, where the rule has no parameters.
    Queries and keys are permuted where they share one mask and the rule ignores positions; in self-attention
    the two have one order. ``Rule.laws`` says what features of q and k allow. A layer without biases maps -x
    to minus its output if the rule lets q and k change signs together.

    Permuting keys is exact except for the order of summation.

    The letters of axes are those of the operations ``attention`` and ``multihead``.
    """
    mask, laws = case.mask, rule.laws
    free_queries = mask.ignores("i") and "permute_queries" in laws
    free_keys = free_queries and mask.ignores("j") and not rule.pairs_keys
    free_keys = free_keys and not (is_encoded(case) and encoding_of(case).runs(case))
    if case.is_self_attention:
        free_queries = free_keys
    orders = {"b": _order(rng, case.B, mask.ignores("b")), "i": _order(rng, case.Lq, free_queries)}
    orders["j"] = orders["i"] if case.is_self_attention else _order(rng, case.Lk, free_keys)
    if case.layer is not None:
        mirrors = not case.layer.bias and "flip_features" in laws
        mirrored = _signs(rng, case.B, mirrors)
        return Change(orders, dict.fromkeys(_OF_LAYERS, ("b", mirrored)))
    heads = _order(rng, case.Hkv, not rule.parameters(case) and mask.ignores("h"))
    orders |= {"g": heads, "h": (heads[:, None] * case.group + np.arange(case.group)).ravel()}
    if is_encoded(case):
        return Change(orders, _factors_of_codes(case, rule, rng), together=True)
    signs = _signs(rng, case.D, "flip_features" in laws)
    moved = np.exp2(rng.integers(-1, 2, case.D)) if "scale_features" in laws else np.ones(case.D)
    values = _signs(rng, case.Dv, True) * np.exp2(rng.integers(0, LARGEST_EXPONENT + 1, case.Dv))
    return Change(
        orders,
        {
            "q": ("d", signs * moved),
            "k": ("d", signs / moved),
            "v": ("e", values),
            "out": ("e", values),
            "upstream": ("e", 1 / values),
        },
    )


def _factors_of_codes(case: Case, rule: Rule, rng: np.random.Generator) -> dict[str, tuple[str, Factors]]:
    """Draw factors that encoded keys and values keep: powers of two of all, which change scales, and signs.

    Those of the values are never all 1, so that a cached answer is wrong in a case of one query and head.
    Values that are features of the keys have no scale of their own, and change signs with them. Scales that
    are given leave signs alone.
    """
    encoding = encoding_of(case)
    signs = _signs(rng, case.D, encoding.mirrors and "flip_features" in rule.laws)
    power = np.exp2(rng.integers(-1, 2)) if "scale_features" in rule.laws and not encoding.shared else 1.0
    values = _signs(rng, case.Dv, encoding.mirrors) * np.exp2(rng.integers(1, LARGEST_EXPONENT + 1))
    if encoding.given(case):
        power, values = 1.0, np.sign(values)
    if encoding.shared:
        values = signs[: case.Dv]
    return {"q": ("d", signs / power), "k": ("d", signs * power), "v": ("e", values), "out": ("e", values)}


_OF_LAYERS = ("queries", "keys", "values", "x", "context", "out", "upstream")
"""The tensors of a layer that have batch elements: its sources, also as one memory, and its output."""


def _order(rng: np.random.Generator, count: int, holds: bool) -> Order:
    return rng.permutation(count) if holds else np.arange(count)


def _signs(rng: np.random.Generator, count: int, holds: bool) -> Factors:
    return rng.choice([-1.0, 1.0], count) if holds else np.ones(count)


def _ordered(array: Stored, axes: str, orders: Mapping[str, Order]) -> Stored:
    """Return an array with the places of its axes in these orders, by letter."""
    if not any(letter in orders for letter in axes):
        return array
    every = [orders.get(letter, np.arange(size)) for letter, size in zip(axes, array.shape, strict=True)]
    # The last axes, which keep their places, are copied as they lie.
    while axes[len(every) - 1] not in orders:
        every.pop()
    return array[np.ix_(*every)]


def _along(factors: Factors, letter: str, axes: str) -> Factors:
    """Return factors in a shape that multiplies the axis of a letter."""
    return factors.reshape([-1 if each == letter else 1 for each in axes])


def _widened(array: Stored, dtype: Dtype) -> Wide:
    return array if array.dtype.itemsize >= np.dtype(np.float64).itemsize else widen(array, dtype)


def _working(stored: Stored, dtype: Dtype) -> NDArray[Any]:
    """Return numbers that signs and powers of two can multiply exactly: float32 where that suffices."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if dtype == "float16" else stored


def _stored(values: NDArray[Any], factors: Factors, dtype: Dtype) -> Stored:
    """Return products, which the dtype holds exactly, as stored."""
    product: NDArray[Any] = values * factors.astype(values.dtype)
    if dtype == "bfloat16":
        return (product.view(np.uint32) >> 16).astype(np.uint16)
    return product.astype(np.float16) if dtype == "float16" else product


def _exact(values: NDArray[Any], factors: Factors, axis: int, dtype: Dtype) -> NDArray[np.bool_]:
    """Return by place of an axis whether all products with a power of two can be undone exactly."""
    wide = np.moveaxis(values.astype(np.float64) if dtype != "float32" else values, axis, -1)
    used = factors.astype(wide.dtype)
    with np.errstate(under="ignore", over="ignore"):
        kept = rounded(wide * used, dtype).astype(wide.dtype) / used == wide
    return np.asarray(kept.reshape(-1, kept.shape[-1]).all(axis=0))
