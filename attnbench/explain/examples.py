"""Small inputs that a rule can be explained on: a user's tokens, and the examples of the textbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.errors import BadInput
from attnbench.types.mask import EVERYTHING, Mask
from attnbench.types.words import count_of, unknown_name

if TYPE_CHECKING:
    from attnbench.types.rule import Array

MOST_TOKENS, MOST_FEATURES = 256, 1024
LARGEST = 1e100
"""The largest magnitude of a number: products of two, summed over all features, stay finite."""


@dataclass(frozen=True)
class Example:
    """Small inputs of attention, all in float64.

    q (H, Lq, D), k (H, Lk, D), v (H, Lk, Dv): the inputs of the rule; for a rule that pairs keys k is (H, Lq,
    D). queries, keys: a label for each. name: of an example of the textbook, or "". rule: the rule that the
    textbook uses; any other works too. summary: the inputs in words. tokens: (L, E), where q, k and v are
    made from tokens. matrices: W_q, W_k and W_v, (E, D), that tokens are multiplied by. Without them q, k and
    v are the tokens, or parts of them with several heads. combine: (D + Dv, any), a matrix that [query ;
    output] is multiplied by at the end, or None. seed: of the parameters of the rule.
    """

    q: Array
    k: Array
    v: Array
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    name: str = ""
    rule: str = ""
    summary: str = ""
    mask: Mask = EVERYTHING
    tokens: Array | None = None
    matrices: Mapping[str, Array] = field(default_factory=dict)
    combine: Array | None = None
    seed: int = 0


def example_of(
    tokens: Any, *, labels: tuple[str, ...] = (), heads: int = 1,
    matrices: Mapping[str, Array] | None = None, **fields: Any,
) -> Example:  # fmt: skip
    """Make self-attention inputs of tokens (L, E): q = X W_q and so on, or X itself without matrices.

    heads: the number of equal parts of q, k and v. labels: one for each token; x1, x2, ... by default.
    fields: of the :class:`Example`.

    Raises:
        BadInput: something is not a number, there are too many numbers, or sizes do not fit.
    """
    tokens = checked(tokens, "the tokens")
    names = labels or numbered("x", len(tokens))
    if len(names) != len(tokens):
        words = count_of(len(names), "label"), count_of(len(tokens), "token")
        raise BadInput(f"{words[0]} for {words[1]}: give one label for each token")
    matrices = matrices or {}
    made = {name: tokens @ matrix for name, matrix in matrices.items()}
    q, k, v = (cut(made.get(name, tokens), heads) for name in ("W_q", "W_k", "W_v"))
    return Example(q, k, v, names, names, tokens=tokens, matrices=matrices, **fields)


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Return labels: x1, x2, ..."""
    return tuple(f"{letter}{i}" for i in range(1, count + 1))


def cut(rows: Array, heads: int) -> Array:
    """Cut (L, heads * D) to (heads, L, D); raises :class:`BadInput` if heads do not divide the width."""
    width = rows.shape[1]
    if width % heads:
        raise BadInput(f"{width} features can't be cut into {heads} heads of equal width")
    return np.ascontiguousarray(rows.reshape(len(rows), heads, width // heads).transpose(1, 0, 2))


def checked(rows: Any, what: str) -> Array:
    """Return a small matrix of finite numbers in float64; raises :class:`BadInput` for anything else."""
    array = np.asarray(rows)
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{what} have the dtype {array.dtype}: give rows of numbers")
    if array.ndim != 2 or 0 in array.shape:
        raise BadInput(f"{what} have the shape {array.shape}: give (tokens, features), at least one of each")
    if array.shape[0] > MOST_TOKENS or array.shape[1] > MOST_FEATURES:
        raise BadInput(
            f"{what} have the shape {array.shape}: attnbench explain takes at most {MOST_TOKENS} tokens of "
            f"{MOST_FEATURES} features; attnbench run takes larger inputs"
        )
    numbers = np.asarray(array, np.float64)
    odd = np.argwhere(~(np.abs(numbers) <= LARGEST))
    if len(odd):
        row, column = odd[0]
        raise BadInput(
            f"{what} have {numbers[row, column]:g} in row {row + 1}, column {column + 1}: "
            f"give finite numbers within ±{LARGEST:g}"
        )
    return numbers


def _concatenate() -> Example:
    rng = np.random.default_rng(0)
    q, k, v = rng.random((1, 1, 32)), rng.random((1, 1, 32)), rng.random((1, 32, 64))
    return Example(
        q, k, v, ("q1",), numbered("v", 32), "concatenate", "concat_linear",
        "one query joined with its key, 32 values", combine=rng.standard_normal((96, 64)) / np.sqrt(96),
    )  # fmt: skip


_EXAMPLES = (
    example_of(
        [[1, 3, 2], [1, 1, 3], [1, 2, 1]],
        name="self-attention", rule="dot", summary="three tokens of three features",
    ),
    example_of(
        [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0.5, 0.5, 0]],
        name="five-tokens", rule="scaled_dot", summary="five tokens of four features",
    ),
    example_of(
        [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
        matrices={
            "W_q": np.array([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]),
            "W_k": np.array([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]),
            "W_v": np.array([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]),
        },
        name="projections", rule="dot", summary="three tokens, multiplied by W_q, W_k and W_v",
    ),
    _concatenate(),
    example_of(
        np.random.default_rng(0).standard_normal((4, 4)), labels=("the", "cat", "sat", "down"),
        mask=Mask(causal="upper_left"),
        name="causal-sentence", rule="scaled_dot", summary="four words; each sees itself and those before",
    ),
)  # fmt: skip
EXAMPLES = {example.name: example for example in _EXAMPLES}


def example_named(name: str) -> Example:
    """Return the example of a name; raises :class:`BadInput` with the nearest name."""
    if name not in EXAMPLES:
        raise BadInput(unknown_name("example", name, EXAMPLES))
    return EXAMPLES[name]


def example_for(rule: str) -> Example:
    """Return the example that the textbook uses for a rule; ``five-tokens`` for other rules."""
    return next((e for e in EXAMPLES.values() if e.rule == rule), EXAMPLES["five-tokens"])
