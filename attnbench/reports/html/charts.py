"""The charts as specifications in Vega-Lite, without data.

The page's script replaces ``{"$": "backend"}`` by the values of that field in the rows that are shown,
``{"$": "colours"}`` and ``{"$": "shapes"}`` by the marks of those backends, ``{"$": "height"}`` by the height
of their cases. Names from files are only ever values of data, never part of an expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from attnbench.reports.html.rows import Row

Spec = dict[str, Any]

COLOURS = (
    "#4c72e0", "#e0503c", "#2f9a45", "#b87d00", "#a463f2", "#1c968c", "#e0559a", "#9c6b4e", "#3b97c4",
    "#808590",
)  # fmt: skip
"""Each has a contrast of 3 or more to the light and to the dark page (WCAG 2.2, 1.4.11)."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
FASTER_TO_SLOWER = (
    "rgba(31, 111, 180, 0.75)", "rgba(31, 111, 180, 0.4)", "rgba(130, 130, 130, 0.15)",
    "rgba(196, 89, 27, 0.4)", "rgba(196, 89, 27, 0.75)",
)  # fmt: skip
"""Transparent, so that the ink of either page can be read on them."""


@dataclass(frozen=True)
class Chart:
    """A chart: how to read it, its specification, and the labels of its views."""

    name: str
    title: str
    lead: str
    spec: Spec
    views: tuple[str, ...] = ()


def charts(rows: Iterable[Row]) -> list[Chart]:
    """The charts that have rows to show."""
    views: dict[str, dict[str, None]] = {}
    shown: set[str] = set()
    for row in rows:
        for field in (field for field in row if field.startswith("in_")):
            views.setdefault(field[3:], {})[row[field]] = None
        if "ratio" in row:
            shown.add("ratios")
    made = (_ratios(), _against_length("time"), _against_length("memory"), _pareto(), _roofline())
    return [
        Chart(one.name, one.title, one.lead, one.spec, tuple(views[one.name]))
        for one in made
        if one.name in views and (one.name != "ratios" or "ratios" in shown)
    ]


def _ratios() -> Chart:
    x = {
        "field": "backend", "type": "nominal", "title": None, "scale": {"domain": {"$": "backend"}},
        "axis": {"orient": "top", "labelAngle": -40, "labelLimit": 150, "domain": False, "ticks": False},
    }  # fmt: skip
    y = {
        "field": "line", "type": "nominal", "title": None, "scale": {"domain": {"$": "line"}},
        "axis": {
            "labelExpr": "split(datum.label, '\\n')", "labelLimit": 300, "domain": False, "ticks": False,
            # Vega hangs the second line below the first, which is centred.
            "labelBaseline": {
                "condition": {"test": "indexof(datum.value, '\\n') >= 0", "value": "bottom"},
                "value": "middle",
            },
        },
    }  # fmt: skip
    colour = {
        "field": "ratio", "type": "quantitative",
        "scale": {"type": "log", "domain": [0.25, 0.7, 1, 1.4, 4], "range": list(FASTER_TO_SLOWER),
                  "clamp": True, "interpolate": "rgb"},
        "legend": {"title": "time over the baseline's", "orient": "bottom", "gradientLength": 220,
                   "values": [0.25, 0.5, 1, 2, 4]},
    }  # fmt: skip
    pale = {"condition": {"test": "datum.sure", "value": 1}, "value": 0.45}
    tips = _tips(case="case", backend="backend", cell="ratio", interval="interval", outcome="outcome")
    cells = {
        "transform": [{"filter": "isValid(datum.ratio)"}],
        "mark": {"type": "rect", "cornerRadius": 2},
        "encoding": {"color": colour, "opacity": pale, "tooltip": tips},
    }
    texts = {
        "mark": {"type": "text", "fontSize": 11, "color": "currentColor"},
        "encoding": {"text": {"field": "cell"}, "tooltip": tips},
    }
    return Chart(
        "ratios",
        "Ratios by case and backend",
        "Time over the baseline's: blue is faster, orange is slower. Pale with a question mark: the verdict "
        "is unclear. A word replaces the ratio if there is no valid time.",
        _figure({"x": x, "y": y}, [cells, texts], {"$": "height"}),
    )


def _against_length(name: str) -> Chart:
    """Time or memory against length, both logarithmic: a straight line is a power of the length."""
    field, title = {"time": ("ms", "time per call, ms"), "memory": ("mib", "extra memory, MiB")}[name]
    x = _log("length", "length")
    x["axis"] = {"values": {"$": "length"}, "format": "d", "labelOverlap": True}
    bars = {
        "mark": {"type": "rule", "strokeWidth": 1.5},
        "encoding": {"y": _log("low", title), "y2": {"field": "high"}},
    }
    line = {"mark": {"type": "line", "strokeWidth": 1.75}}
    points = _points(backend="backend", length="length", **{name: name})
    leads = {
        "time": "A bar through a point is the interval of its median. Without a bar, the interval is smaller "
        "than the point or there were too few sets.",
        "memory": "Memory that a call takes beyond its inputs at its peak, output included.",
    }
    return Chart(
        name,
        f"{name.capitalize()} against length",
        leads[name],
        _figure(
            {"x": x, "y": _log(field, title), "color": _COLOUR},
            [*([bars] if name == "time" else []), line, points],
        ),
    )


def _pareto() -> Chart:
    error = {
        "field": "error", "type": "quantitative", "title": "RMS error over the plain reference's",
        "scale": {"zero": False, "nice": True, "padding": 12}, "axis": {"format": "~g", "tickCount": 8},
    }  # fmt: skip
    front = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "line", "interpolate": "step-after", "strokeDash": [5, 4], "color": "currentColor"},
        "encoding": {"order": {"field": "error"}},
    }
    points = _points(backend="backend", time="time", budget="error")
    points["encoding"] |= {
        "color": _COLOUR,
        "size": {"condition": {"test": "datum.front", "value": 130}, "value": 50},
    }
    return Chart(
        "pareto",
        "Speed against error",
        "Left is more exact, down is faster. No other backend beats those on the dashed line in both. All "
        "backends here passed the check.",
        _figure({"x": error, "y": _log("ms", "time per call, ms")}, [front, points]),
    )


def _roofline() -> Chart:
    limit = {
        "mark": {"type": "tick", "orient": "horizontal", "thickness": 2, "size": 18, "color": "currentColor"},
        "encoding": {"y": _log("limit", "GFLOP/s"), "tooltip": _tips(case="case", limit="limit, GFLOP/s")},
    }
    points = _points(case="case", backend="backend", time="time", share="share of the limit")
    points["encoding"]["color"] = _COLOUR
    return Chart(
        "roofline",
        "Speed against the limit of the machine",
        "A tick is the limit of a case, from matrix products and copies that were timed in the same run. The "
        "limit is the fast end of those times, so honest backends lie below it.",
        _figure(
            {"x": _log("intensity", "operations per byte"), "y": _log("gflops", "GFLOP/s")}, [limit, points]
        ),
    )


_LEGEND: Spec = {
    "orient": "bottom", "columns": {"expr": "max(1, floor(width / 190))"}, "labelLimit": 170, "title": None,
}  # fmt: skip
_COLOUR: Spec = {
    "field": "backend", "type": "nominal", "legend": _LEGEND,
    "scale": {"domain": {"$": "backend"}, "range": {"$": "colours"}},
}  # fmt: skip
_SHAPE: Spec = _COLOUR | {"scale": {"domain": {"$": "backend"}, "range": {"$": "shapes"}}}


def _log(field: str, title: str) -> Spec:
    return {
        "field": field, "type": "quantitative", "title": title,
        "scale": {"type": "log", "nice": False, "padding": 14},
        "axis": {"format": "~g", "labelOverlap": True, "tickCount": 6, "gridOpacity": 0.06},
    }  # fmt: skip


def _points(**tips: str) -> Spec:
    return {
        "mark": {"type": "point", "filled": True, "opacity": 1, "size": 55},
        "encoding": {"shape": _SHAPE, "tooltip": _tips(**tips)},
    }


def _tips(**heads: str) -> list[Spec]:
    return [{"field": field, "type": "nominal", "title": head} for field, head in heads.items()]


def _figure(encoding: Spec, layers: list[Spec], height: Any = 420) -> Spec:
    """A specification as wide as its place on the page."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": {"$": "rows"}},
        "encoding": encoding,
        "layer": layers,
    }
