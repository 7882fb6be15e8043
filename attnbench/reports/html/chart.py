"""A chart: a Vega-Lite specification, the views that a reader chooses among, and the same as a table.

A specification holds no data and no name from a file. Where it has ``{"$view": "key"}`` the page puts what
the chosen view holds under that key; ``values`` are its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the grammar; nothing is fetched from there."""

COLOURS = (
    "#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0", "#ff8ab7", "#9c6b4e", "#97bbf5",
    "#9498a0",
)  # fmt: skip
"""Told apart on white and on black; shapes tell the same for those who don't see colours."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


@dataclass(frozen=True)
class Table:
    """Rows for those who read numbers: columns by (key, head).

    rows: None for those of the chart itself; where they have a ``kind``, the points. open: stands there,
    rather than unfolds.
    """

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...] | None = None
    open: bool = False


@dataclass(frozen=True)
class View:
    """One choice of what a chart shows.

    label: as it stands in the list. about: what is seen, for those who don't see it. values: the rows of the
    chart. holds: what else the specification takes from it. tables: what stands under the chart.
    """

    label: str
    about: str
    values: tuple[Row, ...]
    holds: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart of a page. name: unique among them. lead: how to read it. choice: what views differ by.

    nothing: what stands there instead where there are no views. wide: scrolls on narrow screens.
    """

    name: str
    title: str
    lead: str
    choice: str
    spec: Spec
    views: tuple[View, ...]
    nothing: str
    wide: bool = False


def of_the_view(key: str) -> Any:
    """The place in a specification that is filled from the view."""
    return {"$view": key}


class Marks:
    """The colour and shape of each backend, the same in all charts of a page."""

    def __init__(self, backends: Iterable[str]) -> None:
        self._place = {name: place for place, name in enumerate(dict.fromkeys(backends))}

    def scales(self, names: Sequence[str]) -> dict[str, Any]:
        """What :func:`colour` and :func:`shape` take from a view that shows these backends."""
        places = [self._place[name] for name in names]
        return {
            "names": list(names),
            "colours": [COLOURS[place % len(COLOURS)] for place in places],
            "shapes": [SHAPES[(place + place // len(COLOURS)) % len(SHAPES)] for place in places],
        }

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Names in the order of the page."""
        return sorted(set(names), key=self._place.__getitem__)


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
