"""Pairs of queries and keys that are both out of reach of the quotient form: by tanh itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.backends.additive_factors import beyond

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = 1 << 18
"""Hidden values at once: a MiB of float32."""


@dataclass(frozen=True)
class FarPairs:
    """a (B, H, Lq, D), b (B, H, Lk, D), v (H, D); and which queries and keys are far, (B, H, L)."""

    a: Tensor
    b: Tensor
    v: Tensor
    far_queries: Tensor
    far_keys: Tensor

    def score(self, scores: Tensor, b: int, heads: slice, rows: slice, cols: slice) -> None:
        """Write the scores of far pairs over those in a tile (heads, rows, cols)."""
        for n, h, i, j in self._pairs(b, heads, rows, cols):
            hidden = (self.a[b, h, i, None] + self.b[b, h, j]).tanh_()
            at = (i - rows.start)[:, None], j - cols.start
            scores[n][at] = hidden @ self.v[h]

    def gradients(
        self, upstream: Tensor, into: tuple[Tensor, Tensor, Tensor], b: int, heads: slice, rows: slice, cols: slice
    ) -> None:
        """Add what far pairs give to the gradients of a, b and v; their ``upstream`` is 0 from then on."""
        of_a, of_b, of_v = into
        for n, h, i, j in self._pairs(b, heads, rows, cols):
            hidden = (self.a[b, h, i, None] + self.b[b, h, j]).tanh_()
            at = (i - rows.start)[:, None], j - cols.start
            given = upstream[n][at]
            of_v[h] += given.flatten() @ hidden.flatten(0, 1)
            inner = hidden.square_().neg_().add_(1).mul_(self.v[h]).mul_(given[..., None])
            of_a[b, h].index_add_(0, i, inner.sum(1))
            of_b[b, h].index_add_(0, j, inner.sum(0))
            upstream[n][at] = 0

    def _pairs(self, b: int, heads: slice, rows: slice, cols: slice) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Place in the tile, head, some far queries and all far keys of each head."""
        for n, h in enumerate(range(heads.start, heads.stop)):
            i = self.far_queries[b, h, rows].nonzero()[:, 0] + rows.start
            j = self.far_keys[b, h, cols].nonzero()[:, 0] + cols.start
            if not len(i) or not len(j):
                continue
            at_once = max(1, ELEMENTS // (len(j) * self.a.shape[-1]))
            for some in i.split(at_once):
                yield n, h, some, j


def far_pairs(a: Tensor, b: Tensor, v: Tensor) -> FarPairs | None:
    """The pairs out of reach; None where there is none."""
    far_queries, far_keys = beyond(a), beyond(b)
    if not bool((far_queries.any(-1) & far_keys.any(-1)).any()):
        return None
    return FarPairs(a, b, v, far_queries, far_keys)
