"""Pictures, by Vega-Lite: drawn by vl-convert, which has all it needs with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnbench.types.errors import BadInput
from attnbench.worked.steps import WEIGHTS, Step

ENDINGS = (".png", ".svg")
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
"""What Vega-Lite is called in its specifications; nobody opens it."""
_CELL, _SMALL_CELL, _MANY = 44, 14, 16


def heatmap_spec(steps: Sequence[Step], title: str) -> dict[str, Any]:
    """Weights of every head side by side: queries down, keys across, darker is larger, 0 to 1."""
    heads = [step for step in steps if step.name == WEIGHTS]
    first = heads[0]
    size = _CELL if max(first.values.shape) <= _MANY else _SMALL_CELL
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
            "x": _axis("key", "keys", first.columns),
            "y": _axis("query", "queries", first.rows),
            "color": {
                "field": "weight", "type": "quantitative", "title": "weight",
                # In Vega's own way between colours, round the wheel of hues, white turns to cyan.
                "scale": {"range": ["white", "#6baed6", "#08306b"], "domain": [0, 1], "interpolate": "rgb"},
            },
        },
    }  # fmt: skip
    layers = [cells]
    if size == _CELL:
        dark = {"condition": {"test": "datum.weight > 0.55", "value": "white"}, "value": "black"}
        text = {"field": "weight", "type": "quantitative", "format": ".2f"}
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


def _axis(field: str, title: str, labels: Sequence[str]) -> dict[str, Any]:
    # An expression has its labels as data: what a label says is shown and never read as code.
    shown = json.dumps([str(label) for label in labels], ensure_ascii=True)
    axis: dict[str, Any] = {"labelExpr": f"{shown}[datum.value]", "title": title, "domain": False}
    axis |= {"labelAngle": 0 if field == "query" else -40, "ticks": False}
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
    """Write a specification as a picture, in the format that the name ends in."""
    import vl_convert

    if path.suffix.lower() == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    else:
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
