"""The columns of the table, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from attnbench.cases.sizes import human_bytes
from attnbench.reports.units import digits, duration, error
from attnbench.types.record import Record

GAP = 2
"""Blanks between two columns, and before the first."""
_COUNTED_BYTES = 512 * 1024
NAMES = "backend"
"""The head of the first column."""


@dataclass(frozen=True)
class Column:
    """A column of numbers: its head, and the cell of a record, None where it has none."""

    head: str
    cell: Callable[[Record], str | None]


def _accuracy(name: str, words: Callable[[float], str]) -> Callable[[Record], str | None]:
    return lambda record: None if record.accuracy is None else words(getattr(record.accuracy, name))


def _measured(name: str, words: Callable[[float], str]) -> Callable[[Record], str | None]:
    def cell(record: Record) -> str | None:
        value = getattr(record, name)
        return None if value is None else words(value)

    return cell


def _spread(record: Record) -> str | None:
    if record.low_ms is None or record.high_ms is None or not record.median_ms:
        return None
    return f"{50 * (record.high_ms - record.low_ms) / record.median_ms:.0f}%"


def _extra(count: float) -> str:
    """Pages are counted in batches: what is less than that is told as no more than it is."""
    return f"<{human_bytes(_COUNTED_BYTES)}" if count < _COUNTED_BYTES else human_bytes(count)


_TIME = Column("time", _measured("median_ms", duration))
_SPREAD = Column("±", _spread)
_RMS_ERROR = Column("rms error", _accuracy("rms_error", error))
_MAX_ERROR = Column("max error", _accuracy("max_error", error))
_RMS_BUDGET = Column("rms/ref", _accuracy("error_budget", digits))
_MAX_BUDGET = Column("max/ref", _accuracy("max_error_budget", digits))
_TFLOPS = Column("TFLOP/s", _measured("tflops", digits))
_GBPS = Column("GB/s", _measured("gbps", digits))
_EXTRA = Column("extra", _measured("peak_extra_bytes", _extra))
_PREPARE = Column("prepare", _measured("prepare_ms", duration))
_FIRST = Column("first call", _measured("first_call_ms", duration))

_REST = (
    _RMS_ERROR, _MAX_ERROR, _RMS_BUDGET, _MAX_BUDGET, _TFLOPS, _GBPS, _EXTRA, _PREPARE, _FIRST,
)  # fmt: skip
_DROPPED_FIRST = (_FIRST, _PREPARE, _MAX_ERROR, _RMS_ERROR, _GBPS, _EXTRA, _TFLOPS, _SPREAD)
"""What a narrow terminal does without; JSON, CSV and a wider one have it."""


def _ratio_column(records: Iterable[Record]) -> Column:
    baselines = {record.baseline for record in records if record.ratio is not None}
    head = f"×{baselines.pop()}" if len(baselines) == 1 else "ratio"
    return Column(head, _measured("ratio", digits))


def fitting(records: Sequence[Record], width: int) -> tuple[list[Column], list[int]]:
    """The columns that have something to show and fit, and the widths of all, that of the names first."""
    ratio = _ratio_column(records)
    columns = [
        c for c in (_TIME, _SPREAD, ratio, *_REST) if any(c.cell(record) is not None for record in records)
    ]
    for dropped in (None, *_DROPPED_FIRST):
        columns = [c for c in columns if c is not dropped]
        widths = [max([len(NAMES), *(len(record.backend) for record in records)])]
        widths += [max([len(c.head), *(len(c.cell(record) or "") for record in records)]) for c in columns]
        if sum(widths) + GAP * len(widths) <= width:
            break
    widths[0] -= max(0, sum(widths) + GAP * len(widths) - width)
    return columns, widths
