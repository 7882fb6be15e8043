"""Time and memory against length, and the powers they grow by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attnbench.cases.sizes import human_bytes
from attnbench.reports.columns import COUNTED_BYTES, name_text, time_text
from attnbench.reports.html.chart import (
    Chart,
    Marks,
    Row,
    Spec,
    Table,
    View,
    colour,
    figure,
    log_axis,
    of_the_view,
    shape,
    tooltip,
)  # fmt: skip
from attnbench.reports.html.families import FEWEST_FITTED, Family, Growth, families, growth
from attnbench.reports.html.shown import Shown
from attnbench.reports.html.times import time_interval
from attnbench.types.record import Record

_TIPS = (("backend", "backend"), ("length", "length"))


def time_chart(runs: Sequence[Shown], marks: Marks) -> Chart:
    """Time against length: a line for each backend, its intervals, and the exponents fitted."""
    points: Spec = {
        "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
        "encoding": _encoding("time per call, ms", ("told", "time"), ("interval", "interval")),
    }
    whiskers: Spec = {
        "mark": {"type": "rule", "strokeWidth": 1.5},
        "encoding": {
            "x": _length(), "y": log_axis("low", "time per call, ms"), "y2": {"field": "high"},
            "color": colour(),
        },
    }  # fmt: skip
    return Chart(
        name="time",
        title="Time against length",
        lead="Both axes are logarithmic: a straight line is a power of the length, and its slope the "
        "exponent. A bar through a point is the interval of its median; where none is seen, it is smaller "
        "than the point.",
        choice="Cases",
        spec=figure([whiskers, _line("time per call, ms"), points]),
        views=_views(runs, marks, _time_row, _times),
        nothing="No two cases with a time differ in length alone, so there is no line to draw: run a suite "
        "with several lengths.",
    )


def memory_chart(runs: Sequence[Shown], marks: Marks) -> Chart:
    """Memory against length."""
    points: Spec = {
        "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
        "encoding": _encoding("extra memory, MiB", ("told", "extra memory")),
    }
    return Chart(
        name="memory",
        title="Memory against length",
        lead="What one call takes beyond its inputs at its peak, its output included. Pages are counted in "
        f"batches: what is less than {human_bytes(COUNTED_BYTES)} isn't told, and left out.",
        choice="Cases",
        spec=figure([_line("extra memory, MiB"), points]),
        views=_views(runs, marks, _memory_row, _memories),
        nothing="No two cases of which memory was measured differ in length alone.",
    )


def _length() -> Spec:
    axis = {"values": of_the_view("lengths"), "format": "d", "labelOverlap": True}
    return {"field": "length", "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 14},
            "axis": axis, "title": "length"}  # fmt: skip


def _line(title: str) -> Spec:
    encoding = {"x": _length(), "y": log_axis("amount", title), "color": colour()}
    return {"mark": {"type": "line", "strokeWidth": 1.75}, "encoding": encoding}


def _encoding(title: str, *tips: tuple[str, str]) -> Spec:
    return {
        "x": _length(), "y": log_axis("amount", title), "color": colour(), "shape": shape(),
        "tooltip": tooltip(*_TIPS, *tips),
    }  # fmt: skip


def _time_row(length: int, record: Record) -> Row | None:
    if record.median_ms is None:
        return None
    low, high = record.low_ms, record.high_ms
    return {
        "length": length, "backend": name_text(record), "amount": record.median_ms,
        "low": record.median_ms if low is None else low, "high": record.median_ms if high is None else high,
        "told": time_text(record), "interval": time_interval(record),
    }  # fmt: skip


def _memory_row(length: int, record: Record) -> Row | None:
    count = record.peak_extra_bytes
    if count is None or count < COUNTED_BYTES:
        return None
    amount, told = count / 2**20, human_bytes(count)
    return {"length": length, "backend": name_text(record), "amount": amount, "told": told}


def _views(
    runs: Sequence[Shown],
    marks: Marks,
    row: Callable[[int, Record], Row | None],
    tables: Callable[[list[Row], Family], tuple[Table, ...]],
) -> tuple[View, ...]:
    made = []
    for run in runs:
        for family in families(run.records):
            rows = [found for length, record in family.records if (found := row(length, record)) is not None]
            lengths = sorted({one["length"] for one in rows})
            if len(lengths) < 2:
                continue
            names = marks.ordered(one["backend"] for one in rows)
            shown = tables(rows, family)
            made.append(
                View(
                    label=f"run {run.number}: {family.label}" if len(runs) > 1 else family.label,
                    about=_about(rows, lengths),
                    values=tuple(rows),
                    holds=marks.scales(names) | {"lengths": lengths},
                    tables=shown,
                )
            )
    return tuple(made)


def _about(rows: Sequence[Row], lengths: Sequence[int]) -> str:
    """What is seen at the longest: who needs least, who most."""
    said = f"{len({row['backend'] for row in rows})} backends over lengths {lengths[0]} to {lengths[-1]}."
    last = sorted((row for row in rows if row["length"] == lengths[-1]), key=_amount)
    if len(last) < 2:
        return said
    least, most = last[0], last[-1]
    return (
        f"{said} At {lengths[-1]} {least['backend']} has the least, {least['told']}, and {most['backend']} "
        f"the most, {most['told']}, as measured."
    )


def _amount(row: Row) -> float:
    return float(row["amount"])


def _times(rows: list[Row], family: Family) -> tuple[Table, ...]:
    return (
        _slopes(rows, "Time"),
        Table(
            f"Times of {family.label}",
            (("backend", "backend"), ("length", "length"), ("told", "time"), ("interval", "interval")),
        ),
    )


def _memories(rows: list[Row], family: Family) -> tuple[Table, ...]:
    return (
        _slopes(rows, "Memory"),
        Table(
            f"Memory of {family.label}",
            (("backend", "backend"), ("length", "length"), ("told", "extra memory")),
        ),
    )


def _slopes(rows: list[Row], what: str) -> Table:
    by_backend: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        by_backend.setdefault(row["backend"], []).append((row["length"], row["amount"]))
    found = [(name, growth(points)) for name, points in by_backend.items()]
    told = sorted(((name, one) for name, one in found if one is not None), key=lambda pair: pair[1].exponent)
    return Table(
        f"{what} grows with the length to this power [95 % of a straight line's fit{_of_two(told)}]",
        (("backend", "backend"), ("exponent", "exponent"), ("over", "over lengths")),
        tuple({"backend": name, "exponent": one.text, "over": one.over} for name, one in told),
        open=True,
    )


def _of_two(told: Sequence[tuple[str, Growth]]) -> str:
    few = any(one.lengths < FEWEST_FITTED for _, one in told)
    return "; ?: two lengths always lie on a line" if few else ""
