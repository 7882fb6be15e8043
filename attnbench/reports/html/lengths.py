"""Time and memory against length, and the powers they grow by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attnbench.cases.sizes import human_bytes
from attnbench.reports.columns import COUNTED_BYTES, name_text, time_text
from attnbench.reports.html.chart import Chart, Marks, Row, Spec, Table, View, by_run
from attnbench.reports.html.families import FEWEST_FITTED, Family, Growth, families, growth
from attnbench.reports.html.layers import colour, figure, log_axis, of_the_view, points, whiskers
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.shown import Shown
from attnbench.reports.html.times import time_interval
from attnbench.reports.html.words import isolated
from attnbench.types.record import Record
from attnbench.types.words import count_of

_TIPS = (("backend", "backend"), ("length", "length"))
_SIZE = 55


def time_chart(runs: Sequence[Shown], marks: Marks) -> Chart:
    """Time against length: a line for each backend, its intervals, and the exponents fitted."""
    x, y = _length(), log_axis("amount", "time per call, ms")
    measured = points(x, y, *_TIPS, ("told", "time"), ("interval", "interval"), size=_SIZE)
    return Chart(
        name="time",
        title="Time against length",
        lead="Both axes are logarithmic: a straight line is a power of the length, and its slope the "
        "exponent. A bar through a point is the interval of its median; where none is seen, it is smaller "
        "than the point, or there were too few sets for one.",
        choice="Cases",
        spec=figure([whiskers(x, y), _line(x, y), measured]),
        views=by_run(runs, lambda run: _views(run, marks, _time_row, _times)),
        nothing="No two cases with a time differ in length alone, so there is no line to draw: run a suite "
        "with several lengths.",
    )


def memory_chart(runs: Sequence[Shown], marks: Marks) -> Chart:
    """Memory against length."""
    x, y = _length(), log_axis("amount", "extra memory, MiB")
    measured = points(x, y, *_TIPS, ("told", "extra memory"), size=_SIZE)
    return Chart(
        name="memory",
        title="Memory against length",
        lead="What one call takes beyond its inputs at its peak, its output included. Pages are counted in "
        f"batches: what is less than {human_bytes(COUNTED_BYTES)} isn't told, and left out.",
        choice="Cases",
        spec=figure([_line(x, y), measured]),
        views=by_run(runs, lambda run: _views(run, marks, _memory_row, _memories)),
        nothing="No two cases that differ in length alone were seen to take "
        f"{human_bytes(COUNTED_BYTES)} or more, the least that is told.",
    )


def _length() -> Spec:
    axis = {"values": of_the_view("lengths"), "format": "d", "labelOverlap": True}
    return {"field": "length", "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 14},
            "axis": axis, "title": "length"}  # fmt: skip


def _line(x: Spec, y: Spec) -> Spec:
    return {"mark": {"type": "line", "strokeWidth": 1.75}, "encoding": {"x": x, "y": y, "color": colour()}}


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
    run: Shown,
    marks: Marks,
    row: Callable[[int, Record], Row | None],
    tables: Callable[[list[Row], Family], tuple[Table, ...]],
) -> Iterator[View]:
    those = families(run.records)
    common = common_part([family.label for family in those])
    for family in those:
        rows = [found for length, record in family.records if (found := row(length, record)) is not None]
        lengths = sorted({one["length"] for one in rows})
        if len(lengths) < 2:
            continue
        names = marks.ordered(one["backend"] for one in rows)
        yield View(
            label=shortened(family.label, common),
            about=_about(rows, lengths),
            values=tuple(rows),
            holds=marks.scales(names) | {"lengths": lengths},
            tables=tables(rows, family),
        )


def _about(rows: Sequence[Row], lengths: Sequence[int]) -> str:
    """What is seen at the longest: who needs least, who most."""
    backends = count_of(len({row["backend"] for row in rows}), "backend")
    said = f"{backends} over lengths {lengths[0]} to {lengths[-1]}."
    last = sorted((row for row in rows if row["length"] == lengths[-1]), key=_amount)
    if len(last) < 2:
        return said
    least, most = last[0], last[-1]
    if least["told"] == most["told"]:
        return f"{said} At {lengths[-1]} all {len(last)} have {least['told']}, as measured."
    return (
        f"{said} At {lengths[-1]} {isolated(least['backend'])} has the least, {least['told']}, and "
        f"{isolated(most['backend'])} the most, {most['told']}, as measured."
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
