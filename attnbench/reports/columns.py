"""The columns of the table, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from attnbench.cases.work import human_bytes
from attnbench.plugins.registry import Entry
from attnbench.reports.judged import BASELINE, Judged
from attnbench.reports.units import duration, error, figure, number, percent, plus_minus, ratio, reach
from attnbench.types.extensions import Metric
from attnbench.types.record import Accuracy, Record

GAP = 2
"""Blanks between two columns, and before the first."""
COUNTED_BYTES = 512 * 1024
"""Memory is told in no less than this."""
NAMES = "backend"
"""The head of the first column."""
UNCERTAIN = "?"
"""Stands where an interval would, and there were too few sets for one."""


@dataclass(frozen=True)
class Column:
    """A column: its head, the cell of a record (None where it has none), and on which side cells line up.

    added: whether a plugin brings it. value: the number of which the cell is the text, for those who sort;
    None where it is none.
    """

    head: str
    cell: Callable[[Judged], str | None]
    justify: Literal["left", "right"] = "right"
    added: bool = False
    value: Callable[[Judged], float | None] = lambda judged: None


def _of(words: Callable[[Record], str | None]) -> Callable[[Judged], str | None]:
    return lambda judged: words(judged.record)


def _number(name: str) -> Callable[[Judged], float | None]:
    def value(judged: Judged) -> float | None:
        found = getattr(judged.record, name)
        return None if found is None else float(found)

    return value


def _accuracy(name: str) -> Callable[[Judged], float | None]:
    def value(judged: Judged) -> float | None:
        accuracy = judged.record.accuracy
        return None if accuracy is None else float(getattr(accuracy, name))

    return value


def _checked(words: Callable[[Accuracy], str]) -> Callable[[Judged], str | None]:
    return lambda judged: None if judged.record.accuracy is None else words(judged.record.accuracy)


def name_text(record: Record) -> str:
    """The backend of a record, and the one whose kernel it runs where that is another's."""
    return f"{record.backend} → {record.kernel_of}" if record.kernel_of else record.backend


def time_text(record: Record) -> str | None:
    """The median time of a record in its unit; None where it has none."""
    if record.median_ms is None:
        return None
    return duration(record.median_ms, reach(record.median_ms, record.low_ms, record.high_ms))


def _time_spread(record: Record) -> str | None:
    return _spread(record.median_ms, record.low_ms, record.high_ms)


def _time_share(judged: Judged) -> float | None:
    record = judged.record
    far = reach(record.median_ms or 0.0, record.low_ms, record.high_ms)
    return far / record.median_ms if far is not None and record.median_ms else None


def _spread(value: float | None, low: float | None, high: float | None) -> str | None:
    if not value:
        return None
    far = reach(value, low, high)
    return UNCERTAIN if far is None else plus_minus(value, far)


def _ratio(record: Record) -> str | None:
    if record.ratio is None:
        return None
    if record.backend == record.baseline:
        return "1"
    text, bounds = ratio(record.ratio, record.ratio_low, record.ratio_high)
    return text if bounds else text + UNCERTAIN


def _ratio_interval(record: Record) -> str | None:
    if record.ratio is None or record.backend == record.baseline:
        return None
    return ratio(record.ratio, record.ratio_low, record.ratio_high)[1] or UNCERTAIN


def ratio_text(record: Record) -> tuple[str, str]:
    """The ratio of a record and its interval; "" where it has none."""
    return _ratio(record) or "", _ratio_interval(record) or ""


def _ratio_spread(record: Record) -> str | None:
    if record.backend == record.baseline:
        return None
    return _spread(record.ratio, record.ratio_low, record.ratio_high)


def _ratio_to_best(record: Record) -> str | None:
    """To the digits of the ratio, which is measured alike; that of the baseline to those of its time."""
    if record.ratio_to_best is None or record.backend == record.best:
        return None if record.ratio_to_best is None else "1"
    middle, low, high = record.ratio, record.ratio_low, record.ratio_high
    if record.backend == record.baseline or record.ratio is None:
        middle, low, high = record.median_ms, record.low_ms, record.high_ms
    far = reach(middle, low, high) if middle else None
    scaled = None if not middle or far is None else record.ratio_to_best * far / middle
    return number(record.ratio_to_best, scaled, most=3)


def _rate(name: str, words: Callable[[float, float | None], str]) -> Callable[[Judged], str | None]:
    """A quantity over the time, to the digits that the time's interval justifies."""

    def cell(judged: Judged) -> str | None:
        record = judged.record
        value = getattr(record, name)
        if value is None:
            return None
        far = None
        if record.median_ms and record.low_ms and record.high_ms:
            low, high = value * record.median_ms / record.high_ms, value * record.median_ms / record.low_ms
            far = reach(value, low, high)
        return words(value, far)

    return cell


def _three_digits(value: float, far: float | None) -> str:
    return number(value, far, most=3)


def _extra(record: Record) -> str | None:
    """Pages are counted in batches: what is less than that is told as no more than it is."""
    count = record.peak_extra_bytes
    if count is None:
        return None
    return f"<{human_bytes(COUNTED_BYTES)}" if count < COUNTED_BYTES else human_bytes(count)


def _once(name: str) -> Callable[[Judged], str | None]:
    """A time that was taken just once."""

    def cell(judged: Judged) -> str | None:
        value = getattr(judged.record, name)
        return None if value is None else duration(value)

    return cell


def _verdict(judged: Judged) -> str | None:
    return judged.verdict


_TIME = Column("time", _of(time_text), value=_number("median_ms"))
_SPREAD = Column("±", _of(_time_spread), value=_time_share)
_INTERVAL = Column("interval", _of(_ratio_interval), value=_number("ratio_low"))
_RATIO_SPREAD = Column("±", _of(_ratio_spread))
VERDICT = Column("verdict", _verdict, "left")
_BEST = Column("×best", _of(_ratio_to_best), value=_number("ratio_to_best"))
_LIMIT = Column("limit", _rate("limit_share", percent), value=_number("limit_share"))
_RMS_ERROR = Column(
    "rms error", _checked(lambda accuracy: error(accuracy.rms_error)), value=_accuracy("rms_error")
)
_MAX_ERROR = Column(
    "max error", _checked(lambda accuracy: error(accuracy.max_error)), value=_accuracy("max_error")
)
_RMS_BUDGET = Column(
    "rms/ref", _checked(lambda accuracy: number(accuracy.error_budget)), value=_accuracy("error_budget")
)
_MAX_BUDGET = Column(
    "max/ref", _checked(lambda accuracy: number(accuracy.max_error_budget)),
    value=_accuracy("max_error_budget"),
)  # fmt: skip
_TFLOPS = Column("TFLOP/s", _rate("tflops", _three_digits), value=_number("tflops"))
_GBPS = Column("GB/s", _rate("gbps", _three_digits), value=_number("gbps"))
_EXTRA = Column("extra", _of(_extra), value=_number("peak_extra_bytes"))
_PREPARE = Column("prepare", _once("prepare_ms"), value=_number("prepare_ms"))
_FIRST = Column("first call", _once("first_call_ms"), value=_number("first_call_ms"))

_DROPPED_FIRST = (
    _FIRST, _PREPARE, _MAX_ERROR, _RMS_ERROR, _GBPS, _TFLOPS, _INTERVAL, _EXTRA, _LIMIT, _BEST,
)  # fmt: skip
"""What a narrow terminal does without; JSON, CSV and a wider one have it."""
_DROPPED_LAST = (_SPREAD, _RATIO_SPREAD)
"""Only where it must do without what plugins add, too."""
_SHORTER = {_INTERVAL: _RATIO_SPREAD}
"""What stands in for a column that is dropped."""


def all_columns(judged: Iterable[Judged]) -> list[Column]:
    """Every column that has something to show, in order."""
    judged = list(judged)
    baselines = {one.record.baseline for one in judged if one.record.ratio is not None}
    head = f"×{baselines.pop()}" if len(baselines) == 1 else "ratio"
    columns = (
        _TIME, _SPREAD, Column(head, _of(_ratio), value=_number("ratio")), _INTERVAL, VERDICT, _BEST,
        _LIMIT, _RMS_ERROR, _MAX_ERROR, _RMS_BUDGET, _MAX_BUDGET, _TFLOPS, _GBPS, _EXTRA, _PREPARE, _FIRST,
    )  # fmt: skip
    shown = (*columns, *map(_added, metrics_of(judged)))
    return [column for column in shown if any(column.cell(one) is not None for one in judged)]


def metrics_of(judged: Iterable[Judged]) -> list[Entry[Metric]]:
    """The metrics of plugins that records were asked for, in order."""
    return list(dict.fromkeys(cell.entry for one in judged for cell in one.added))


def _added(entry: Entry[Metric]) -> Column:
    def value(judged: Judged) -> float | None:
        return next((added.value for added in judged.added if added.entry == entry), None)

    def cell(judged: Judged) -> str | None:
        found = value(judged)
        return None if found is None else figure(found, entry.record.digits)

    return Column(entry.record.head, cell, added=True, value=value)


def fitting(judged: Sequence[Judged], width: int) -> tuple[list[Column], list[int]]:
    """The columns that have something to show and fit, and the widths of all, that of the names first."""
    columns = all_columns(judged)
    added = [column for column in reversed(columns) if column.added]
    for dropped in (None, *_DROPPED_FIRST, *added, *_DROPPED_LAST):
        if dropped in columns:
            place = columns.index(dropped)
            columns[place : place + 1] = [_SHORTER[dropped]] if dropped in _SHORTER else []
        widths = [max([len(NAMES), *(len(name_text(one.record)) for one in judged)])]
        widths += [max([len(c.head), *(len(c.cell(one) or "") for one in judged)]) for c in columns]
        if sum(widths) + GAP * len(widths) <= width:
            break
    widths[0] -= max(0, sum(widths) + GAP * len(widths) - width)
    return columns, widths


STYLES: dict[str | None, str] = {"faster": "green", "unclear": "yellow", BASELINE: "dim"}
"""How the words of verdicts look where there is colour."""
