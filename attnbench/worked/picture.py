"""Pictures, by Vega-Lite: drawn by vl-convert, which has all it needs with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnbench.types.errors import BadFile, BadInput
from attnbench.types.words import clean
from attnbench.worked.steps import WEIGHTS, Step
from attnbench.worked.text import short

ENDINGS = (".png", ".svg")
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
"""What Vega-Lite is called in its specifications; nobody opens it."""
_CELL, _SMALL_CELL, _MANY = 44, 14, 16
_LARGEST = 900
"""Pixels of a side of one head, for many tokens: 256 of them have cells of 3."""
_MOST_CELLS = 2**17
"""Of all heads: 8 of 128 tokens each. Each cell takes some 40 µs to draw."""
_WHITE_FROM = 0.72
"""Of the darkest: on what is darker white has the better contrast, on all else black."""


def heatmap_spec(steps: Sequence[Step], title: str) -> dict[str, Any]:
    """Weights of every head side by side: queries down, keys across, darker is larger.

    The darkest is the largest of all heads. A cell has its weight where cells are large; none where it is 0.

    Raises:
        BadInput: there are more cells than a picture is for.
    """
    heads = [step for step in steps if step.name == WEIGHTS]
    first = heads[0]
    queries, keys = first.values.shape
    if len(heads) * queries * keys > _MOST_CELLS:
        raise BadInput(
            f"a heatmap of {len(heads)} heads of {queries}×{keys} weights: at most {_MOST_CELLS} cells are "
            f"drawn, those of {_MOST_CELLS // (queries * keys)} such heads; --format csv has every number"
        )
    # vl-convert ends the whole process at a control character.
    title = clean(title)
    most = max(queries, keys)
    size = _CELL if most <= _MANY else min(_SMALL_CELL, max(1, _LARGEST // most))
    largest = max(float(head.values.max()) for head in heads) or 1.0
    values = [
        # Numbered, so that two tokens with one label stay two rows.
        {"head": f"head {head.head + 1}", "query": i, "key": j, "weight": float(head.values[i, j])}  # type: ignore[operator]
        for head in heads
        for i in range(len(head.rows))
        for j in range(len(head.columns))
    ]
    cells: dict[str, Any] = {
        "mark": {"type": "rect"},
        "encoding": {
            "x": _axis("key", "keys", first.columns, size),
            "y": _axis("query", "queries", first.rows, size),
            "color": {
                "field": "weight", "type": "quantitative", "title": "weight",
                # In Vega's own way between colours, round the wheel of hues, white turns to cyan.
                "scale": {
                    "range": ["white", "#6baed6", "#08306b"], "domain": [0, largest / 2, largest],
                    "interpolate": "rgb",
                },
                # A format would round what is read aloud of the cells too.
                "legend": {"values": [0, largest / 2, largest], "labelExpr": "format(datum.value, '.2f')"},
            },
        },
    }  # fmt: skip
    layers = [cells]
    if size == _CELL:
        test = f"datum.weight > {_WHITE_FROM * largest}"
        dark = {"condition": {"test": test, "value": "white"}, "value": "black"}
        # What a mask drops, or is too small for a float, is no 0.00 among others.
        empty = {"test": "datum.weight === 0", "value": ""}
        text = {"condition": empty, "field": "weight", "type": "quantitative", "format": ".2f"}
        encoding = {"x": cells["encoding"]["x"], "y": cells["encoding"]["y"], "text": text, "color": dark}
        layers.append({"mark": {"type": "text", "fontSize": 11}, "encoding": encoding})
    shape = {"width": {"step": size}, "height": {"step": size}, "layer": layers}
    spec: dict[str, Any] = {"$schema": SCHEMA, "background": "white", "data": {"values": values}}
    # Where a viewer has other fonts, words are wider than they were thought to be.
    spec["padding"] = {"left": 8, "top": 8, "right": 24, "bottom": 8}
    if len(heads) == 1:
        return spec | {"title": title} | shape
    facet = {"field": "head", "type": "nominal", "title": None, "sort": None}
    return spec | {"title": title, "facet": facet, "columns": 4, "spec": shape}


def _axis(field: str, title: str, labels: Sequence[str], size: int) -> dict[str, Any]:
    # An expression has its labels as data: what a label says is shown and never read as code.
    shown = json.dumps([short(label) for label in labels], ensure_ascii=True)
    axis: dict[str, Any] = {"labelExpr": f"{shown}[datum.value]", "title": title, "domain": False}
    axis |= {"labelAngle": 0 if field == "query" else -40, "ticks": False}
    if size < _SMALL_CELL:
        # One in so many labels, since a line of text is as high as several cells.
        axis["values"] = list(range(0, len(labels), -(-_SMALL_CELL // size)))
    return {"field": field, "type": "ordinal", "axis": axis}


def check_picture(path: Path) -> None:
    """Raise :class:`BadInput` where no picture can be drawn into that file, before anything is worked out."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"{str(path)!r}: pictures end in {' or '.join(ENDINGS)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BadInput(f"{str(path)!r}: no file can be written there; is the folder there?")
    from importlib.util import find_spec

    if find_spec("vl_convert") is None:
        raise BadInput("pictures need vl-convert-python: pip install 'attnbench[html]'")


def draw(spec: dict[str, Any], path: Path) -> None:
    """Write a specification as a picture, in the format that the name ends in.

    Raises:
        BadFile: it can't be written there.
    """
    import vl_convert

    if path.suffix.lower() == ".svg":
        drawn = vl_convert.vegalite_to_svg(spec).encode()
    else:
        drawn = vl_convert.vegalite_to_png(spec, scale=2)
    try:
        path.write_bytes(drawn)
    except OSError as failure:
        raise BadFile(f"{str(path)!r}: {failure.strerror or failure}") from None
