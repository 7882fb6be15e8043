"""Pictures of weights by Vega-Lite, drawn by vl-convert without a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnbench.explain.steps import WEIGHTS, Step
from attnbench.explain.text import short
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.words import clean

ENDINGS = (".png", ".svg")
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
"""The identifier of Vega-Lite in its specifications; nothing is downloaded."""
_CELL, _SMALL_CELL, _MANY = 44, 14, 16
_LARGEST = 900
"""The largest side of one head in pixels, for many tokens: 256 of them get cells of 3 pixels."""
_MOST_CELLS = 2**17
"""The most cells of all heads, such as 8 heads of 128 tokens. A cell takes about 40 µs to draw."""
_WHITE_FROM = 0.72
"""The share of the darkest weight above which white text has the better contrast."""


def heatmap_spec(steps: Sequence[Step], title: str) -> dict[str, Any]:
    """Specify a heatmap of the weights of every head: queries down, keys across, darker is larger.

    The darkest cell is the largest weight of all heads. Large cells show their weight, unless it is 0.

    Raises:
        BadInput: there are too many cells for a picture.
    """
    heads = [step for step in steps if step.name == WEIGHTS]
    queries, keys = heads[0].values.shape
    if len(heads) * queries * keys > _MOST_CELLS:
        raise BadInput(
            f"a heatmap of {len(heads)} heads of {queries}×{keys} weights: at most {_MOST_CELLS} cells can "
            "be drawn; --format csv prints every number"
        )
    most = max(queries, keys)
    size = _CELL if most <= _MANY else min(_SMALL_CELL, max(1, _LARGEST // most))
    largest = max(float(head.values.max()) for head in heads) or 1.0
    values = [
        # Numbered, so that two tokens with one label stay two rows.
        {"head": f"head {number}", "query": i, "key": j, "weight": float(head.values[i, j])}
        for number, head in enumerate(heads, 1)
        for i, j in np.ndindex(queries, keys)
    ]
    x, y = _axis("key", "keys", heads[0].columns, size), _axis("query", "queries", heads[0].rows, size)
    colour = {
        "field": "weight", "type": "quantitative", "title": "weight",
        # Vega's default interpolation passes through cyan.
        "scale": {
            "range": ["white", "#6baed6", "#08306b"], "domain": [0, largest / 2, largest],
            "interpolate": "rgb",
        },
        # A format would also round the weights in the cells' accessible text.
        "legend": {"values": [0, largest / 2, largest], "labelExpr": "format(datum.value, '.2f')"},
    }  # fmt: skip
    layers: list[dict[str, Any]] = [{"mark": {"type": "rect"}, "encoding": {"x": x, "y": y, "color": colour}}]
    if size == _CELL:
        dark = {"test": f"datum.weight > {_WHITE_FROM * largest}", "value": "white"}
        # A dropped key shows no text, because 0.00 would read as a small weight.
        empty = {"test": "datum.weight === 0", "value": ""}
        text = {"condition": empty, "field": "weight", "type": "quantitative", "format": ".2f"}
        encoding = {"x": x, "y": y, "text": text, "color": {"condition": dark, "value": "black"}}
        layers.append({"mark": {"type": "text", "fontSize": 11}, "encoding": encoding})
    spec: dict[str, Any] = {
        "$schema": SCHEMA, "background": "white", "data": {"values": values},
        # Fonts of other viewers may be wider.
        "padding": {"left": 8, "top": 8, "right": 24, "bottom": 8},
        # vl-convert ends the whole process at a control character.
        "title": clean(title),
    }  # fmt: skip
    shape = {"width": {"step": size}, "height": {"step": size}, "layer": layers}
    if len(heads) == 1:
        return spec | shape
    facet = {"field": "head", "type": "nominal", "title": None, "sort": None}
    return spec | {"facet": facet, "columns": 4, "spec": shape}


def _axis(field: str, title: str, labels: Sequence[str], size: int) -> dict[str, Any]:
    # Labels are data in an expression: they are shown and never read as code.
    shown = json.dumps([short(label) for label in labels], ensure_ascii=True)
    axis: dict[str, Any] = {"labelExpr": f"{shown}[datum.value]", "title": title, "domain": False}
    axis |= {"labelAngle": 0 if field == "query" else -40, "ticks": False}
    if size < _SMALL_CELL:
        # Every n-th label only, because a line of text is higher than a cell.
        axis["values"] = list(range(0, len(labels), -(-_SMALL_CELL // size)))
    return {"field": field, "type": "ordinal", "axis": axis}


def check_picture(path: Path) -> None:
    """Raise :class:`BadInput` where a picture can't be written to a file, before anything is computed."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"{str(path)!r}: give a file that ends in {' or '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise BadInput(f"can't write {str(path)!r}: there is no folder {str(path.parent)!r}")
    from importlib.util import find_spec

    if find_spec("vl_convert") is None:
        raise BadInput("pictures need vl-convert-python: pip install 'attnbench[html]'")


def draw(spec: dict[str, Any], path: Path) -> None:
    """Draw a specification, in the format that the name of the file ends in.

    Raises:
        BadFile: the file can't be written.
    """
    import vl_convert

    if path.suffix.lower() == ".svg":
        drawn = vl_convert.vegalite_to_svg(spec).encode()
    else:
        drawn = vl_convert.vegalite_to_png(spec, scale=2)
    try:
        path.write_bytes(drawn)
    except OSError as failure:
        raise BadFile(f"can't write {str(path)!r}: {failure.strerror or failure}") from None
