"""Speed against exactness, case by case, and which backends no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from attnbench.reports.columns import name_text, time_text
from attnbench.reports.html.chart import Chart, Marks, Row, Spec, Table, View, by_run
from attnbench.reports.html.layers import figure, log_axis, points, whiskers
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.shown import Shown
from attnbench.reports.html.times import time_interval
from attnbench.reports.html.words import isolated
from attnbench.reports.units import number
from attnbench.types.record import Record

_TIPS = (
    ("backend", "backend"), ("time", "time"), ("interval", "interval"), ("budget", "error budget"),
    ("front", "on the front"),
)  # fmt: skip


def pareto_chart(runs: Sequence[Shown], marks: Marks) -> Chart:
    """Time against error budget: one view for each case."""
    x: Spec = {
        "field": "error", "type": "quantitative", "scale": {"zero": False, "nice": True, "padding": 12},
        "title": "RMS error over the plain computation's", "axis": {"format": "~g", "tickCount": 8},
    }  # fmt: skip
    y = log_axis("ms", "time per call, ms")
    front: Spec = {
        "transform": [{"filter": "datum.front === 'yes'"}],
        "mark": {"type": "line", "interpolate": "step-after", "strokeDash": [5, 4], "opacity": 0.7,
                 "color": "currentColor"},
        "encoding": {"x": x, "y": y, "order": {"field": "error"}},
    }  # fmt: skip
    size = {"condition": {"test": "datum.front === 'yes'", "value": 130}, "value": 50}
    return Chart(
        name="pareto",
        title="Speed against error",
        lead="Left is more exact, down is faster. The dashed line joins those that no other beats in both, "
        "by median times and errors in two digits; where intervals overlap, the front may run otherwise. "
        "All have passed the check.",
        choice="Case",
        spec=figure([front, whiskers(x, y), points(x, y, *_TIPS, size=size)]),
        views=by_run(runs, lambda run: _views(run, marks)),
        nothing="No case has two backends with a time and an error to compare.",
    )  # fmt: skip


def on_the_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which of (time, error) no other point beats: at most as much in both, and less in one."""
    return [
        not any(t <= time and e <= error and (t < time or e < error) for t, e in points)
        for time, error in points
    ]


def _views(run: Shown, marks: Marks) -> list[View]:
    by_case: dict[str, list[Record]] = {}
    for record in run.records:
        checked = record.accuracy is not None and isfinite(record.accuracy.error_budget)
        if record.status == "ok" and record.median_ms is not None and checked:
            by_case.setdefault(record.case, []).append(record)
    shown = {case: those for case, those in by_case.items() if len(those) > 1}
    common = common_part(list(shown))
    return [_view(shortened(case, common), case, those, marks) for case, those in shown.items()]


def _view(label: str, case: str, records: Sequence[Record], marks: Marks) -> View:
    # As they are told: 1.000 is no more exact than 1.005, and would stand beside it as 1.0 and 1.0.
    pairs = [(record.median_ms or 0.0, float(number(_error(record)))) for record in records]
    rows = tuple(
        sorted(
            (_row(record, front) for record, front in zip(records, on_the_front(pairs), strict=True)),
            key=lambda row: row["ms"],
        )
    )
    names = marks.ordered(row["backend"] for row in rows)
    best = ", ".join(isolated(row["backend"]) for row in rows if row["front"] == "yes")
    return View(
        label=label,
        about=f"{len(rows)} backends by time and error. On the front, fastest first: {best}.",
        values=rows,
        holds=marks.scales(names),
        tables=(Table(f"Time and error on {case}", _TIPS),),
    )


def _error(record: Record) -> float:
    return 0.0 if record.accuracy is None else record.accuracy.error_budget


def _row(record: Record, front: bool) -> Row:
    ms = record.median_ms or 0.0
    return {
        "backend": name_text(record), "ms": ms, "error": _error(record), "time": time_text(record),
        "low": ms if record.low_ms is None else record.low_ms,
        "high": ms if record.high_ms is None else record.high_ms,
        "interval": time_interval(record), "budget": number(_error(record)),
        "front": "yes" if front else "no",
    }  # fmt: skip
