"""The times of a file that holds no records, which is all that it has."""

from __future__ import annotations

from statistics import median
from typing import Any

from attnbench.reports.units import duration
from attnbench.types.measured import Cell, Measured

WORDS = ("case", "backend", "status", "time", "quartiles", "reason")
"""Of a table and Markdown."""


def times_rows(run: Measured) -> list[dict[str, Any]]:
    """A row for each cell, in ms: the median over processes, and the quartiles of a lone one's calls."""
    return [
        {
            "case": cell.case,
            "rule": cell.rule,
            "backend": cell.backend,
            "status": cell.status,
            "reason": cell.reason,
            "median_ms": median(cell.processes_ns) / 1e6 if cell.processes_ns else None,
            "q1_ms": cell.calls_ns[1] / 1e6 if cell.calls_ns else None,
            "q3_ms": cell.calls_ns[3] / 1e6 if cell.calls_ns else None,
            "processes": len(cell.processes_ns),
            "started": run.started,
            "commit": run.commit,
            "path": str(run.path),
        }
        for cell in run.cells
    ]


def times_words(run: Measured) -> list[dict[str, str]]:
    """The same for people, under :data:`WORDS`: a time in three digits, with its unit."""
    return [
        {
            "case": cell.case,
            "backend": cell.backend,
            "status": cell.status,
            "time": _time(median(cell.processes_ns)) if cell.processes_ns else "",
            "quartiles": _quartiles(cell),
            "reason": cell.reason,
        }
        for cell in run.cells
    ]


def _quartiles(cell: Cell) -> str:
    return f"{_time(cell.calls_ns[1])} to {_time(cell.calls_ns[3])}" if cell.calls_ns else ""


def _time(ns: float) -> str:
    return duration(ns / 1e6, ns / 1e6 / 100)
