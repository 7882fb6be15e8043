"""Tiles of additive scores, from the factors of some queries and keys: forward and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Views = Sequence[Tensor]

ROWS, COLS = 128, 256
"""Of a tile: numerators and denominators of a group, and the scores, stay in a core's second cache."""


SUMMED = 8
"""Quotients that are summed before they are added to the others."""


def tile_shape(Lq: int, Lk: int) -> tuple[int, int]:
    """Rows and columns of a tile; few rows make longer ones."""
    rows = min(Lq, ROWS)
    return rows, min(Lk, max(COLS, ROWS * COLS // rows))


def heads_together(H: int, shape: tuple[int, int]) -> tuple[slice, ...]:
    """Heads by so many that a tile has its size however short it is."""
    at_once = max(1, ROWS * COLS // (shape[0] * shape[1]))
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

    def quotients(self, of_rows: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(heads, 2·rows, cols), and its halves: numerators and denominators."""
        both = self.take("quotients", *of_rows.shape[:2], of_keys.shape[-1])
        numerator, denominator = both.chunk(2, dim=1)
        return both, numerator, denominator


def factors_of_rows(left: Tensor, rows: slice) -> Tensor:
    """Of some queries by group, (groups, heads, TERMS, 2·rows): the numerators' first."""
    return left[..., rows].transpose(0, 1).flatten(-2)


def scores_of_tile(of_rows: Views, of_keys: Views, buffers: Buffers) -> Tensor:
    """(heads, rows, cols), the sum of all quotients: in a buffer.

    of_rows: by group (heads, 2·rows, TERMS); of_keys: by group (heads, TERMS, cols).
    """
    import torch

    quotients, numerator, denominator = buffers.quotients(of_rows[0], of_keys[0])
    scores = buffers.take("scores", *numerator.shape)
    some = buffers.take("some", *numerator.shape)
    for g, (one, other) in enumerate(zip(of_rows, of_keys, strict=True)):
        torch.bmm(one, other, out=quotients)
        # In two levels: a long sum that grows one by one is rounded as often.
        into = scores if g < SUMMED else some
        if g % SUMMED:
            into.addcdiv_(numerator, denominator)
        else:
            torch.div(numerator, denominator, out=into)
        if g >= SUMMED and (g % SUMMED == SUMMED - 1 or g == len(of_rows) - 1):
            scores.add_(some)
    return scores
