"""Ratios of several cases, from the least to the most."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.reports.units import ratio
from attnbench.types.record import Record


def span(records: Sequence[Record]) -> str:
    """The ratios of records from the least to the most: "0.22 to 0.266"; "" of none.

    Each stands to the digits that its interval justifies, three at most.
    """
    found = sorted((record.ratio, _text(record)) for record in records if record.ratio is not None)
    if not found:
        return ""
    least, most = found[0][1], found[-1][1]
    return least if least == most else f"{least} to {most}"


def _text(record: Record) -> str:
    return ratio(record.ratio or 0.0, record.ratio_low, record.ratio_high, most=3)[0]
