"""Pairs of queries and keys that are both out of reach of the quotient form: by tanh itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.backends.additive_factors import beyond, group_sums, reach

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = 1 << 18
"""Hidden values at once: a MiB of float32."""


@dataclass(frozen=True)
class FarPairs:
    """a (heads, Lq, D), b (heads, Lk, D), v (heads, D); which queries and keys are far, (heads, L)."""

    a: Tensor
    b: Tensor
    v: Tensor
    far_queries: Tensor
    far_keys: Tensor

    def score(self, scores: Tensor, rows: slice, cols: slice) -> None:
        """Write the scores of far pairs over those in a tile (heads, rows, cols)."""
        for h, i, j in self._pairs(rows, cols):
            hidden = (self.a[h, i, None] + self.b[h, j]).tanh_()
            scores[h][(i - rows.start)[:, None], j - cols.start] = hidden @ self.v[h]

    def gradients(self, upstream: Tensor, into: tuple[Tensor, ...], rows: slice, cols: slice) -> None:
        """Add what far pairs give to the gradients of a, b and v; their ``upstream`` is 0 from then on."""
        of_a, of_b, of_v = into
        for h, i, j in self._pairs(rows, cols):
            at = (i - rows.start)[:, None], j - cols.start
            given = upstream[h][at]
            upstream[h][at] = 0
            hidden = (self.a[h, i, None] + self.b[h, j]).tanh_()
            of_v[h] += given.flatten() @ hidden.flatten(0, 1)
            inner = hidden.square_().neg_().add_(1).mul_(self.v[h]).mul_(given[..., None])
            of_a[h].index_add_(0, i, inner.sum(1))
            of_b[h].index_add_(0, j, inner.sum(0))

    def _pairs(self, rows: slice, cols: slice) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Of each head in a tile some far queries at a time and all far keys."""
        for h in range(len(self.a)):
            i = self.far_queries[h, rows].nonzero()[:, 0] + rows.start
            j = self.far_keys[h, cols].nonzero()[:, 0] + cols.start
            if not len(i) or not len(j):
                continue
            for some in i.split(max(1, ELEMENTS // (len(j) * self.a.shape[-1]))):
                yield h, some, j


def far_of_groups(a: Tensor, b: Tensor, v: Tensor) -> FarPairs | None:
    """The pairs out of reach of the quotient of a group; None where there is none."""
    return _far(a, b, v, group_sums, reach(a.dtype))


def far_of_features(a: Tensor, b: Tensor, v: Tensor) -> FarPairs | None:
    """The pairs out of reach of 1 / (2 cosh)² of a feature, which has half the reach."""
    return _far(a, b, v, lambda x: x.abs(), reach(a.dtype) / 2)


def _far(
    a: Tensor, b: Tensor, v: Tensor, sums: Callable[[Tensor], Tensor], furthest: float
) -> FarPairs | None:
    far_keys = beyond(sums(b), furthest)
    far_queries = None if far_keys is None else beyond(sums(a), furthest)
    if far_keys is None or far_queries is None:
        return None
    return FarPairs(a, b, v, far_queries, far_keys)
