"""Behaviours as tables: one a quantity, rules down, widths or gains across."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from attnbench.reports.console import bare_table, string_console, written
from attnbench.worked.behaviour import Behaviour
from attnbench.worked.picture import SCHEMA

_SHOWN: tuple[tuple[str, str, Callable[[Behaviour], float]], ...] = (
    ("deviation", "standard deviation of the scores of a row", lambda one: one.deviation),
    ("entropy", "entropy of weights, 1 all equal, 0 all on one key", lambda one: one.entropy),
    ("largest", "largest weight of a row", lambda one: one.largest),
    ("gradient", "norm of the gradient of softmax, 0 is saturated", lambda one: one.gradient),
)


def behaviour_text(
    by_width: Sequence[Behaviour], by_gain: Sequence[Behaviour], *, width: int = 120, colour: bool = False
) -> str:
    """Tables against D; then against the range of the logits, at one D; then what scores cost."""
    parts = [
        f"{text}, against D\n" + _table(by_width, value, lambda one: f"D={one.D}", width, colour)
        for _, text, value in _SHOWN
    ]
    if by_gain:
        at = by_gain[0].D
        parts += [
            f"{text}, queries times a gain, D={at}\n"
            + _table(by_gain, value, lambda one: f"×{one.gain:g}", width, colour)
            for name, text, value in _SHOWN
            if name != "deviation"
        ]
    parts.append(
        f"what scores cost at D={shown_width(one.D for one in by_width)}\n" + _costs(by_width, width, colour)
    )
    return "\n".join(parts)


def _table(
    rows: Sequence[Behaviour],
    value: Callable[[Behaviour], float],
    head: Callable[[Behaviour], str],
    width: int,
    colour: bool,
) -> str:
    heads = list(dict.fromkeys(map(head, rows)))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row.rule, {})[head(row)] = f"{value(row):.3f}"
    table = bare_table()
    table.add_column("rule", no_wrap=True)
    for one in heads:
        table.add_column(one, justify="right", no_wrap=True)
    for rule, of_rule in cells.items():
        table.add_row(rule, *(of_rule.get(one, "") for one in heads))
    console = string_console(width, colour=colour)
    console.print(table)
    return written(console)


def shown_width(widths: Iterable[int]) -> int:
    """The one width that is shown where all would be too many: 64, or the largest."""
    widths = set(widths)
    return 64 if 64 in widths else max(widths)


def _costs(rows: Sequence[Behaviour], width: int, colour: bool) -> str:
    table = bare_table()
    table.add_column("rule", no_wrap=True)
    for head in ("operations a pair", "bytes a pair, float32", "parameters a head"):
        table.add_column(head, justify="right")
    at = shown_width(row.D for row in rows)
    for row in rows:
        if at == row.D:
            table.add_row(row.rule, str(row.pair_flops), str(row.pair_bytes), str(row.parameter_count))
    console = string_console(width, colour=colour)
    console.print(table)
    return written(console)


def behaviour_rows(rows: Sequence[Behaviour]) -> list[dict[str, Any]]:
    """Behaviours as plain rows, without those that stand there twice."""
    return [asdict(row) for row in dict.fromkeys(rows)]


def behaviour_spec(by_width: Sequence[Behaviour], by_gain: Sequence[Behaviour]) -> dict[str, Any]:
    """Lines of every quantity against D, and under them against the gain, as a Vega-Lite specification."""
    rows = [_lines("D", [(float(row.D), row) for row in by_width])]
    if by_gain:
        rows.append(_lines(f"queries times a gain, D={by_gain[0].D}", [(row.gain, row) for row in by_gain]))
    return {"$schema": SCHEMA, "background": "white", "vconcat": rows}


def _lines(across: str, points: Sequence[tuple[float, Behaviour]]) -> dict[str, Any]:
    """A row of pictures, one a quantity, whose ticks stand where there are points."""
    drawn = [(text, value) for name, text, value in _SHOWN if name != "deviation"]
    # The text before the comma is title enough.
    titles = [text.partition(",")[0] for text, _ in drawn]
    values = [
        {"rule": row.rule, "x": x, "quantity": title, "value": value(row)}
        for x, row in points
        for title, (_, value) in zip(titles, drawn, strict=True)
    ]
    ticks = {"values": sorted({x for x, _ in points}), "format": "~g"}
    line = {
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {
                "field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False},
                "title": across, "axis": ticks,
            },
            "y": {"field": "value", "type": "quantitative", "scale": {"domain": [0, 1]}, "title": None},
            "color": {"field": "rule", "type": "nominal", "sort": None, "title": "rule"},
            "strokeDash": {"field": "rule", "type": "nominal", "sort": None, "title": "rule"},
        },
        "width": 220,
        "height": 160,
    }  # fmt: skip
    column = {"field": "quantity", "type": "nominal", "title": None, "sort": titles}
    return {"data": {"values": values}, "facet": {"column": column}, "spec": line}
