"""Tokens to queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.errors import BadInput
from attnbench.types.words import count_of
from attnbench.worked.question import Question

if TYPE_CHECKING:
    from attnbench.types.rule import Array

MOST_TOKENS, MOST_FEATURES = 256, 1024
LARGEST = 1e100
"""Of a number: products of two, summed over all features, stay finite."""


def question_of(
    tokens: Array,
    *,
    labels: tuple[str, ...] = (),
    heads: int = 1,
    matrices: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> Question:
    """Self-attention among tokens (L, E): q = X W_q and so on, or X itself without matrices.

    heads: q, k and v are cut into so many parts of equal width. labels: one a token; x1, x2, ... without.

    Raises:
        BadInput: numbers that are none, too many of them, or sizes that don't fit.
    """
    tokens = checked(tokens, "the tokens")
    names = labels or tuple(f"x{i}" for i in range(1, len(tokens) + 1))
    if len(names) != len(tokens):
        raise BadInput(
            f"{count_of(len(names), 'label')} for {count_of(len(tokens), 'token')}: give one for each"
        )
    made = {name: tokens @ matrix for name, matrix in (matrices or {}).items()}
    q, k, v = (cut(made.get(name, tokens), heads) for name in ("W_q", "W_k", "W_v"))
    return Question(q, k, v, names, names, tokens=tokens, matrices=dict(matrices or {}), seed=seed)


def cut(rows: Array, heads: int) -> Array:
    """(L, heads * D) to (heads, L, D); raises :class:`BadInput` where the width is no multiple of heads."""
    width = rows.shape[1]
    if heads < 1 or width % heads:
        raise BadInput(f"{width} features can't be cut into {heads} heads of equal width")
    return np.ascontiguousarray(rows.reshape(len(rows), heads, width // heads).transpose(1, 0, 2))


def checked(array: Array, what: str) -> Array:
    """A small matrix of finite numbers in float64; raises :class:`BadInput` for anything else."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{what} have no numbers but {array.dtype}: a row of numbers for each is needed")
    if array.ndim != 2 or 0 in array.shape:
        raise BadInput(f"{what} have shape {array.shape}: (tokens, features) is needed, at least one of each")
    if array.shape[0] > MOST_TOKENS or array.shape[1] > MOST_FEATURES:
        raise BadInput(
            f"{what} have shape {array.shape}: this is for reading; at most {MOST_TOKENS} tokens of "
            f"{MOST_FEATURES} features (attnbench run is for larger ones)"
        )
    array = array.astype(np.float64)
    odd = np.argwhere(~(np.abs(array) <= LARGEST))
    if len(odd):
        row, column = odd[0]
        raise BadInput(
            f"{what} have {array[row, column]:g} in row {row + 1}, column {column + 1}: "
            f"finite numbers within ±{LARGEST:g} are needed"
        )
    return array


def random_tokens(count: int, features: int, seed: int) -> Array:
    """Tokens with independent standard normal features: for labels that come without numbers."""
    return np.random.default_rng(seed).standard_normal((count, features))
