"""Metrics: numbers that a plugin makes of a record, a column each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.types.case import Case

if TYPE_CHECKING:
    from attnbench.types.record import Record

MetricValue = Callable[["Record", Case], float | None]
"""Gives the number of a record of a case; None where there is none."""


@dataclass(frozen=True)
class Metric:
    """A column that a plugin adds to tables, JSON, CSV and frames.

    name: of the column in JSON, CSV and frames. summary: what it says, one line; it stands under the table.
    head: of the column in tables, with the unit: ``nJ/call``.
    value: ``value(record, case)`` gives the number, or None for an empty cell. It is asked of records whose
    status is ``ok`` or ``suspect``; of those that were checked alone ``median_ms`` is None.
    digits: how many tables show; as of any number without an interval, two. JSON, CSV and frames have all.
    """

    name: str
    summary: str
    head: str
    value: MetricValue
    digits: int = 2
