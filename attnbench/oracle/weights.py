"""Attention weights from heads, a chunk of rows of one head at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnbench.masks import added_rows, keep_rows
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array

Number = TypeVar("Number", bound=np.generic)

ELEMENTS_AT_ONCE = 1 << 20
"""Elements held for the scores of a chunk: fits a cache, and holds memory to a few such arrays."""


def weights_of(
    case: Case, rule: Rule, parameters: Mapping[str, Array], q: Array, k: Array, rows: NDArray[np.intp]
) -> Iterator[tuple[int, int, slice, Array]]:
    """(b, h, which of ``rows``, weights (r, Lk)) for every chunk of every head.

    q: (B, H, R, D) of these rows. k: (B, Hkv, Lk, D), or (B, Hkv, R, D) where the rule pairs keys.
    """
    positions = (rows + case.query_offset).astype(q.dtype)
    at_once = max(1, ELEMENTS_AT_ONCE // (case.Lk * rule.score_elements(case)))
    of_head = [{name: array[h] for name, array in parameters.items()} for h in range(case.H)]
    for start in range(0, len(rows), at_once):
        at = slice(start, min(start + at_once, len(rows)))
        added, keep = added_rows(case, rows[at]), keep_rows(case, rows[at])
        for b in range(case.B):
            for h in range(case.H):
                keys = k[b, h // case.group]
                scores = rule.reference(
                    q[b, h, at], keys[at] if rule.pairs_keys else keys, of_head[h], positions[at]
                )
                if scores.shape != (at.stop - at.start, case.Lk):
                    raise ValueError(
                        f"the reference of the rule {rule.name} gives scores of shape {scores.shape} "
                        f"where {(at.stop - at.start, case.Lk)} is asked for"
                    )
                if added is not None:
                    scores = scores + _of_batch(added, b)
                if keep is not None:
                    scores = np.where(_of_batch(keep, b), scores, -np.inf)
                sink = None if rule.sink is None else rule.sink(of_head[h])
                yield b, h, at, softmax(scores, sink)


def softmax(scores: Array, sink: float | None = None) -> Array:
    """Weights along the last axis; a row of -inf alone gives 0. A sink takes its share and gives nothing."""
    largest = scores.max(axis=-1, keepdims=True)
    if sink is not None:
        largest = np.maximum(largest, sink)
    largest = np.where(np.isneginf(largest), 0, largest)
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
    return np.asarray(powers / np.where(total == 0, 1, total))


def _of_batch(mask: NDArray[Number], b: int) -> NDArray[Number]:
    part: NDArray[Number] = mask[b if len(mask) > 1 else 0, 0]
    return part
