"""The table of all outcomes: cells as text, with what they are sorted and filtered by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from attnbench.reports.columns import all_columns, name_text
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.shown import Shown
from attnbench.reports.judged import BASELINE, Judged
from attnbench.types.record import STATUSES
from attnbench.types.verdict import WORDS

_LEFT_OUT = ("verdict", "prepare", "first call", "rms error", "max error")
"""Columns that stand elsewhere, or that few look for; ``--csv`` has them."""


@dataclass(frozen=True)
class Head:
    """A column of the table. numeric: whether its cells are sorted as numbers."""

    text: str
    numeric: bool


@dataclass(frozen=True)
class Cell:
    """text, and what the cell is sorted by: "" for what comes last in any order."""

    text: str
    key: str = ""


@dataclass(frozen=True)
class TableRow:
    """An outcome. short: its case without what all cases of the page have in common. cells: the numbers."""

    run: int
    backend: str
    case: str
    short: str
    status: str
    verdict: str
    why: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Outcomes:
    """The whole table, what its filters offer, and what all cases have in common."""

    heads: tuple[Head, ...]
    rows: tuple[TableRow, ...]
    backends: tuple[str, ...]
    statuses: tuple[str, ...]
    verdicts: tuple[str, ...]
    common: str


def outcomes(runs: Sequence[Shown]) -> Outcomes:
    """All outcomes of all runs: case by case, the fastest first, then those without a time."""
    every = [one for run in runs for one in run.judged]
    common = common_part([one.record.case for one in every])
    columns = [column for column in all_columns(every) if column.head not in _LEFT_OUT]
    numeric = [any(column.value(one) is not None for one in every) for column in columns]
    rows = tuple(
        TableRow(
            run=run.number,
            backend=name_text(one.record),
            case=one.record.case,
            short=shortened(one.record.case, common),
            status=one.record.status,
            verdict=one.verdict or "",
            why=_why(one),
            cells=tuple(Cell(column.cell(one) or "", _key(column.value(one))) for column in columns),
        )
        for run in runs
        for one in _ordered(run.judged)
    )
    backends = tuple(dict.fromkeys(row.backend for row in rows))
    present, said = {row.status for row in rows}, {row.verdict for row in rows}
    return Outcomes(
        heads=tuple(Head(column.head, number) for column, number in zip(columns, numeric, strict=True)),
        rows=rows,
        backends=backends,
        statuses=tuple(status for status in STATUSES if status in present),
        verdicts=tuple(word for word in (*WORDS, BASELINE) if word in said),
        common=common.text,
    )


def _ordered(judged: Sequence[Judged]) -> list[Judged]:
    place = {case: place for place, case in enumerate(dict.fromkeys(one.record.case for one in judged))}

    def key(one: Judged) -> tuple[int, int, float]:
        record = one.record
        return place[record.case], STATUSES.index(record.status), record.median_ms or 0.0

    return sorted(judged, key=key)


def _key(value: float | None) -> str:
    return "" if value is None or not isfinite(value) else repr(value)


def _why(judged: Judged) -> str:
    """The reason of a status or a verdict, and the notes."""
    return ". ".join(filter(None, (judged.record.reason, judged.why, *judged.record.notes)))
