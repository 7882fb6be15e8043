"""Which keys the queries of a case see: where values must stand so that they count."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attnbench.masks import keep_rows
from attnbench.types.case import Case

MOST_PAIRS = 1 << 22
"""Pairs looked at to count who sees a key; of more, some rows stand for all."""

FEWEST_ROWS = 64


def seen_counts(case: Case) -> NDArray[np.intp]:
    """How many query rows see each key, (B, Lk), of all rows or of some from the first to the last."""
    seen = np.zeros((case.B, case.Lk), np.intp)
    for _, keep in kept_chunks(case, _some_rows(case)):
        seen += keep.sum(1)
    return seen


def sees_two(case: Case) -> bool:
    """Whether a query sees two keys, so that weights matter at all."""
    return any((keep.sum(2) > 1).any() for _, keep in kept_chunks(case, _some_rows(case)))


def kept_chunks(case: Case, rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Some rows at a time, and which keys they keep, (B, rows, Lk)."""
    at_once = max(1, MOST_PAIRS // (case.B * case.Lk))
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        keep = keep_rows(case, some)
        shape = (case.B, len(some), case.Lk)
        yield some, np.ones(shape, bool) if keep is None else np.broadcast_to(keep[:, 0], shape)


def _some_rows(case: Case) -> NDArray[np.intp]:
    count = min(case.Lq, max(FEWEST_ROWS, MOST_PAIRS // (case.B * case.Lk)))
    return np.unique(np.linspace(0, case.Lq - 1, count).round().astype(np.intp))
