"""Masks that kernels compute by themselves: a band of keys around each query's own position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.types.batch import Lengths, parse_batch
from attnbench.types.mask import PLAIN_MASKS

if TYPE_CHECKING:
    from attnbench.types.case import Case

BAND_MASKS = (*PLAIN_MASKS, "reach")
"""The words of masks of kernels that compute a band; ``supports`` declines the words that are none."""


@dataclass(frozen=True)
class Band:
    """Keys kept before and after the one that a query stands at, its own left out of the count; None for all.

    The last query stands at the last key.
    """

    before: int | None
    after: int | None

    @property
    def causal(self) -> bool:
        """Whether a query sees no later key."""
        return self.after == 0

    def window(self) -> tuple[int | None, int | None]:
        """Both sides of a window, None for one without end; two of them where a causal mask says all."""
        return (None, None) if self.before is None and self.causal else (self.before, self.after)

    def ends(self) -> tuple[int, int]:
        """The window as most libraries take it: -1 is a side without end."""
        before, after = (-1 if end is None else end for end in self.window())
        return before, after

    def leaves_rows_empty(self, case: Case) -> bool:
        """Return whether a query sees no key: there is none, or all that it may see come later."""
        return any(
            queries and (keys == 0 or (self.after is not None and keys - queries + self.after < 0))
            for queries, keys in lengths_of(case)
        )


def lengths_of(case: Case) -> Lengths:
    """The numbers of queries and keys of each sequence of a batch, or of all equal ones."""
    return parse_batch(case.batch) if case.batch else ((case.Lq, case.Lk),)


def band_of(case: Case) -> Band | str:
    """The mask of a case as a band, or the reason why it is not a band."""
    mask = case.mask
    for word in reversed(mask.words):
        if word.form != "band":
            return f"takes causal masks and windows, and no {word.noun}"
    unlike = [pair for pair in lengths_of(case) if pair[0] != pair[1]]
    if mask.causal == "upper_left" and unlike:
        queries, keys = unlike[0]
        return (
            "puts the last query at the last key (causal:lower_right); "
            f"this mask puts the first at the first, with Lq = {queries} and Lk = {keys}"
        )
    return Band(mask.band.before, mask.band.after)


def the_band(case: Case) -> Band:
    """The mask of a case that ``supports`` took as a band."""
    band = band_of(case)
    assert isinstance(band, Band), band
    return band
