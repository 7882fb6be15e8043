"""Masks that kernels compute by themselves: a band of keys around each query's own position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.types.case import Case


@dataclass(frozen=True)
class Band:
    """Keys kept before and after the one that a query stands at, its own left out of the count; None for all.

    The last query stands at the last key.
    """

    before: int | None
    after: int | None

    def ends(self) -> tuple[int, int]:
        """Both as most libraries take them: -1 is a side without end."""
        before, after = (-1 if end is None else end for end in (self.before, self.after))
        return before, after

    def leaves_rows_empty(self, case: Case) -> bool:
        """Return whether the first query sees no key: it stands before all that it may see."""
        return self.after is not None and case.Lk - case.Lq + self.after < 0


def band_of(case: Case) -> Band | str:
    """The mask of a case as a band, or the reason why it is not a band."""
    mask = case.mask
    for word in reversed(mask.words):
        if word.form != "band":
            return f"takes causal masks and windows, and no {word.noun}"
    if case.query_offset != case.Lk - case.Lq:
        return (
            "puts the last query at the last key (causal:lower_right); "
            f"this mask puts the first at the first, with Lq = {case.Lq} and Lk = {case.Lk}"
        )
    return Band(mask.band.before, mask.band.after)


def the_band(case: Case) -> Band:
    """The mask of a case that ``supports`` took as a band."""
    band = band_of(case)
    assert isinstance(band, Band), band
    return band
