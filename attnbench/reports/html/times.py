"""Intervals of times, as a cell."""

from __future__ import annotations

from attnbench.reports.columns import UNCERTAIN, time_text
from attnbench.reports.units import interval
from attnbench.types.record import Record

_PER_MS = {"ns": 1e6, "µs": 1e3, "ms": 1.0, "s": 1e-3}


def time_interval(record: Record) -> str:
    """The interval of a record's median in the unit that its time has: [41, 47] µs. "?" where it has none."""
    text = time_text(record)
    if text is None or record.median_ms is None:
        return ""
    if record.low_ms is None or record.high_ms is None:
        return UNCERTAIN
    unit = text.rpartition(" ")[2]
    scale = _PER_MS[unit]
    return f"{interval(record.median_ms * scale, record.low_ms * scale, record.high_ms * scale)} {unit}"
