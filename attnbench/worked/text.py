"""Steps as text: labelled tables of numbers, and a heatmap of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.reports.console import bare_table, string_console, written
from attnbench.types.words import clean
from attnbench.worked.steps import WEIGHTS, Step

if TYPE_CHECKING:
    from attnbench.types.rule import Array

DIGITS = 4
_SHADES = " ░▒▓█"
_GAP = "…"
_LONGEST_LABEL = 16
_ROWS, _LAST = 24, 2
"""Of a long array so many rows are shown, the last ones among them."""


def steps_text(steps: Sequence[Step], *, width: int = 120, colour: bool = False, digits: int = DIGITS) -> str:
    """Every step: its name, shape and how it's made, then its numbers; under weights a heatmap of them."""
    heads = {step.head for step in steps if step.head is not None}
    parts = []
    for step in steps:
        of_head = f", head {step.head + 1}" if step.head is not None and len(heads) > 1 else ""
        shape = "×".join(map(str, step.values.shape)) or "a number"
        parts.append(f"{step.name} ({shape}){of_head}: {step.text}\n" + numbers(step, width, colour, digits))
        if step.name == WEIGHTS:
            parts.append(heatmap(step, width))
    return "\n".join(parts)


def numbers(step: Step, width: int, colour: bool, digits: int) -> str:
    """The array of a step under the labels of its columns; what doesn't fit is left out in the middle."""
    values = np.atleast_2d(step.values)
    rows = _some(len(values), _ROWS)
    digits = decimals(values, digits)
    cells = [[number(value, digits) for value in row] for row in values]
    labels = [_short(label) for label in step.rows] or [""] * len(values)
    heads = [_short(label) for label in step.columns] or [""] * values.shape[1]
    widest = max(len(cell) for row in (*cells, heads) for cell in row) + 2
    columns = _some(values.shape[1], max(3, (width - max(map(len, labels)) - 4) // widest))
    table = bare_table()
    table.show_header = any(heads)
    table.add_column("", style="dim" if colour else "", no_wrap=True)
    for column in columns:
        table.add_column(_GAP if column is None else heads[column], justify="right", no_wrap=True)
    for row in rows:
        shown = [_GAP if row is None or column is None else cells[row][column] for column in columns]
        table.add_row(_GAP if row is None else labels[row], *shown)
    console = string_console(width, colour=colour)
    console.print(table)
    return "".join(f"  {line}\n" for line in written(console).splitlines())


def decimals(values: Array, most: int = DIGITS) -> int:
    """How many decimals say the numbers of an array exactly, or else the most."""
    finite = values[np.isfinite(values)]
    exact = (count for count in range(most) if np.array_equal(np.round(finite, count), finite))
    return next(exact, most)


def number(value: float, digits: int = DIGITS) -> str:
    """A number to so many decimals; one that would be 0 by rounding, to two digits."""
    if np.isneginf(value):
        return "-inf"
    if 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"


def heatmap(step: Step, width: int) -> str:
    """Weights as shades: queries down, keys across, darker is larger; as many as fit."""
    values = step.values
    across, down = max(3, (width - _LONGEST_LABEL - 4) // 2), 64
    shown = values[:down, :across]
    labels = [_short(label) for label in step.rows[: len(shown)]]
    left, most = max(map(len, labels)), float(values.max()) or 1.0
    lines = [
        f"  {label:>{left}} {''.join(_shade(value / most) * 2 for value in row)}|"
        for label, row in zip(labels, shown, strict=True)
    ]
    cut = "" if shown.shape == values.shape else f", the first {shown.shape[0]}×{shown.shape[1]}"
    scale = f"0 |{''.join(shade * 2 for shade in _SHADES)}| {most:.2g}"
    return "\n".join([*lines, f"  {'':>{left}} queries down, keys across{cut}; {scale}"]) + "\n"


def _shade(share: float) -> str:
    return _SHADES[min(len(_SHADES) - 1, int(share * (len(_SHADES) - 1) + 0.5))]


def _short(label: str) -> str:
    label = clean(label)
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + _GAP


def _some(count: int, most: int) -> list[int | None]:
    """Which of so many are shown: all, or the first and the last with None between."""
    if count <= most:
        return list(range(count))
    return [*range(most - 1 - _LAST), None, *range(count - _LAST, count)]


def steps_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Steps as plain values, for JSON: -inf as the text "-inf", since JSON has none."""
    return [
        {
            "name": step.name,
            "head": step.head,
            "text": step.text,
            "shape": list(step.values.shape),
            "rows": list(step.rows),
            "columns": list(step.columns),
            "values": _plain(step.values),
        }
        for step in steps
    ]


def _plain(values: Array) -> Any:
    if values.ndim:
        return [_plain(part) for part in values]
    return "-inf" if np.isneginf(values) else float(values)


def csv_rows(steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """One row for each number of each step."""
    for step in steps:
        for at in np.ndindex(step.values.shape):
            row = at[0] if len(at) == 2 else 0
            column = at[-1] if at else 0
            value = step.values[at]
            yield {
                "step": step.name,
                "head": step.head,
                "row": step.rows[row] if step.rows else row,
                "column": step.columns[column] if step.columns else column,
                "value": "-inf" if np.isneginf(value) else float(value),
            }
