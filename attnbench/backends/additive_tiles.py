"""Tiles of additive scores, from the factors of some queries and keys: forward and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attnbench.backends.additive_products import product

if TYPE_CHECKING:
    from torch import Tensor

    Views = Sequence[Tensor]

LARGE = 512, 512
"""Rows and columns of a tile: what any call costs besides its work is little beside that of so many pairs."""

SMALL = 128, 256
"""Of a tile where a mask keeps few pairs, and pairs of one of several heads or few rows: for torch.bmm, in a
core's second cache."""

SUMMED = 8
"""Quotients that are summed before they are added to the others."""


def tile_shapes(Lq: int, Lk: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of a large tile and of a small one; few rows make longer ones."""
    for rows, cols in (LARGE, SMALL):
        height = min(Lq, rows)
        yield height, min(Lk, max(cols, math.prod(SMALL) // height))


def heads_together(H: int, shape: tuple[int, int]) -> tuple[slice, ...]:
    """Heads by so many that a tile is not small however short it is."""
    at_once = max(1, math.prod(SMALL) // math.prod(shape))
    return tuple(slice(h, min(h + at_once, H)) for h in range(0, H, at_once))


class Buffers:
    """Memory that all tiles of a call use in turn: what is allocated anew is cold."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.held: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of this shape, with whatever numbers."""
        count = math.prod(shape)
        held = self.held.get(name)
        if held is None or len(held) < count:
            held = self.held[name] = self.like.new_empty(count)
        return held[:count].view(shape)


def of_queries(made: Tensor, sums: Tensor, rows: slice) -> Views:
    """Of factors (heads, groups, TERMS, L) by group the numerators' above the denominators': (heads, 2·rows,
    TERMS)."""
    import torch

    below = made[..., rows].permute(1, 0, 3, 2).contiguous()
    groups, heads, count, terms = below.shape
    both = below.new_empty(groups, heads, 2, count, terms)
    torch.mul(below, sums, out=both[:, :, 0])
    both[:, :, 1] = below
    return both.flatten(2, 3).unbind()


def of_keys(made: Tensor, cols: slice) -> Views:
    """Of factors (heads, groups, TERMS, L) by group: (heads, cols, TERMS)."""
    return made[..., cols].transpose(0, 1).contiguous().mT.unbind()


def write_scores(into: Tensor, of_rows: Views, of_cols: Views, buffers: Buffers) -> None:
    """The sum of all quotients, (heads, rows, cols), of what the two functions above give."""
    import torch

    some = buffers.take("some", *into.shape)
    for g, (one, other) in enumerate(zip(of_rows, of_cols, strict=True)):
        quotient = product(one, other).chunk(2, dim=1)
        # In two levels: a long sum that grows one by one is rounded as often.
        at = into if g < SUMMED else some
        if g % SUMMED:
            at.addcdiv_(*quotient)
        else:
            torch.div(*quotient, out=at)
        # The next one then has its memory, which is warm.
        del quotient
        if g >= SUMMED and (g % SUMMED == SUMMED - 1 or g == len(of_rows) - 1):
            into.add_(some)
