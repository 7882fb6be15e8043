"""What specifications of charts are put together from, in Vega-Lite.

A specification holds no data and no name from a file. Where it has ``{"$view": "key"}`` the page puts what
the chosen view holds under that key; ``values`` are its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnbench.reports.html.chart import Spec

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the grammar; nothing is fetched from there."""


def of_the_view(key: str) -> Any:
    """The place in a specification that is filled from the view."""
    return {"$view": key}


_LEGEND: Spec = {
    "orient": "bottom", "columns": {"expr": "max(1, floor(width / 190))"}, "labelLimit": 170, "title": None,
    "symbolStrokeWidth": 1.5,
}  # fmt: skip


def colour() -> Spec:
    """The encoding of backends by colour."""
    scale = {"domain": of_the_view("names"), "range": of_the_view("colours")}
    return {"field": "backend", "type": "nominal", "scale": scale, "legend": _LEGEND}


def shape() -> Spec:
    """The encoding of backends by shape."""
    scale = {"domain": of_the_view("names"), "range": of_the_view("shapes")}
    return {"field": "backend", "type": "nominal", "scale": scale, "legend": _LEGEND}


def tooltip(*fields: tuple[str, str]) -> list[Spec]:
    """What is shown of a mark that is pointed at: (key, head)."""
    return [{"field": key, "type": "nominal", "title": head} for key, head in fields]


def log_axis(field: str, title: str, **scale: Any) -> Spec:
    """A logarithmic axis, with a faint grid: it has many lines."""
    return {
        "field": field, "type": "quantitative", "title": title,
        "scale": {"type": "log", "nice": False, "padding": 14} | scale,
        "axis": {"format": "~g", "labelOverlap": True, "tickCount": 6, "gridOpacity": 0.06},
    }  # fmt: skip


def points(x: Spec, y: Spec, *tips: tuple[str, str], size: Any) -> Spec:
    """A mark for each row, in the colour and shape of its backend. size: in square pixels, or an encoding."""
    encoding = {"x": x, "y": y, "color": colour(), "shape": shape(), "tooltip": tooltip(*tips)}
    mark: Spec = {"type": "point", "filled": True, "opacity": 1}
    if isinstance(size, dict):
        return {"mark": mark, "encoding": encoding | {"size": size}}
    return {"mark": mark | {"size": size}, "encoding": encoding}


def whiskers(x: Spec, y: Spec) -> Spec:
    """The interval of each row, from ``low`` to ``high``."""
    ends = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    return {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {"x": x, **ends, "color": colour()}}


def of_kind(kind: str, layer: Spec) -> Spec:
    """A layer of those rows alone whose ``kind`` this is."""
    return {"transform": [{"filter": f"datum.kind === '{kind}'"}], **layer}


def figure(layers: Sequence[Spec], height: int | Any = 420, **others: Any) -> Spec:
    """A specification as wide as its place on the page."""
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": of_the_view("values")},
        "layer": list(layers),
        **others,
    }
