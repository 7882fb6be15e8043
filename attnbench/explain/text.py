"""Steps as text and as rows: labelled tables of numbers, a heatmap of the weights, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.explain.steps import WEIGHTS, Step
from attnbench.reports.formats import bare_table, string_console, written
from attnbench.types.words import clean

if TYPE_CHECKING:
    from attnbench.types.rule import Array

GAP = "…"
_SHADES = " ░▒▓█"
_LONGEST_LABEL = 16
_DOWN = 64
"""The most rows of a heatmap."""
_MANY, _UNCUT = 1e12, 10_000
_ROWS, _LAST = 24, 2
"""The number of rows that are shown of a long array, and how many of them are its last rows."""


def steps_text(steps: Sequence[Step], *, width: int = 120, colour: bool = False, digits: int = 4) -> str:
    """Write every step: name, shape, how it is made, numbers. A heatmap of the weights follows them.

    The heatmaps of several heads stand side by side at the end.
    """
    weights = [step for step in steps if step.name == WEIGHTS]
    several = len(weights) > 1
    parts = []
    for step in steps:
        of_head = f", head {step.head + 1}" if step.head is not None and several else ""
        shape = "×".join(map(str, step.values.shape)) or "a number"
        parts.append(f"{step.name} ({shape}){of_head}: {step.text}\n" + numbers(step, width, colour, digits))
        if step.name == WEIGHTS and not several:
            parts.append(heatmap(weights, width))
    if several:
        parts.append(f"weights of {len(weights)} heads side by side\n" + heatmap(weights, width))
    return "\n".join(parts)


def heatmap(heads: Sequence[Step], width: int) -> str:
    """Draw the weights of heads as shades on one scale: queries down, keys across, darker is larger."""
    from rich.cells import cell_len

    labels = [short(label) for label in heads[0].rows[:_DOWN]]
    left = max(map(cell_len, labels))
    largest = max(float(head.values.max()) for head in heads) or 1.0
    keys = min(heads[0].values.shape[1], max(3, (width - left - 4) // 2))
    names = [f"head {number}" for number in range(1, len(heads) + 1)] if len(heads) > 1 else [""]
    each = max(2 * keys + 2, len(names[-1]) + 1)
    at_once = max(1, (width - left - 3) // each)
    lines = []
    for start in range(0, len(heads), at_once):
        beside = slice(start, start + at_once)
        if len(heads) > 1:
            lines.append(f"  {'':>{left}} {''.join(name.ljust(each) for name in names[beside])}")
        for row, label in enumerate(labels):
            cells = ("".join(map(_shade, head.values[row, :keys] / largest)) + "|" for head in heads[beside])
            lines.append(f"  {' ' * (left - cell_len(label))}{label} {''.join(c.ljust(each) for c in cells)}")
    shown = len(labels), keys
    cut = "" if shown == heads[0].values.shape else f", the first {shown[0]}×{shown[1]}"
    scale = f"0 |{''.join(shade * 2 for shade in _SHADES)}| {largest:.2g}"
    lines.append(f"  {'':>{left}} queries down, keys across{cut}; {scale}")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _shade(share: float) -> str:
    return 2 * _SHADES[min(len(_SHADES) - 1, int(share * (len(_SHADES) - 1) + 0.5))]


def short(label: str) -> str:
    """Shorten a label to 16 columns of a terminal, in which some characters take two columns."""
    from rich.cells import cell_len, set_cell_size

    label = clean(label)
    if cell_len(label) <= _LONGEST_LABEL:
        return label
    return set_cell_size(label, _LONGEST_LABEL - 1).rstrip() + GAP


def numbers(step: Step, width: int, colour: bool, digits: int) -> str:
    """Write the array of a step with its labels; what does not fit is left out in the middle."""
    from rich.cells import cell_len

    # A parameter of a rule may have any number of axes; the last one goes across.
    values = step.values.reshape(-1, step.values.shape[-1]) if step.values.ndim else step.values[None, None]
    rows = _some(len(values), _ROWS)
    digits = _decimals(values, digits)
    # Formatting only the shown rows saves most of the time.
    cells = {row: [number(value, digits) for value in values[row]] for row in rows if row is not None}
    labels = [short(label) for label in step.rows] or [""] * len(values)
    heads = [short(label) for label in step.columns] or [""] * values.shape[1]
    widest = max(cell_len(cell) for row in (*cells.values(), heads) for cell in row) + 2
    columns = _some(values.shape[1], max(3, (width - max(map(cell_len, labels)) - 4) // widest))
    table = bare_table()
    table.show_header = any(heads)
    table.add_column("", style="dim" if colour else "", no_wrap=True)
    for column in columns:
        table.add_column(GAP if column is None else heads[column], justify="right", no_wrap=True)
    for row in rows:
        shown = [GAP if row is None or column is None else cells[row][column] for column in columns]
        table.add_row(GAP if row is None else labels[row], *shown)
    # The columns were chosen to fit, so rich must not cut a number.
    console = string_console(_UNCUT, colour=colour)
    console.print(table)
    return "".join(f"  {line}\n" for line in written(console).splitlines())


def _decimals(values: Array, most: int) -> int:
    """Return how many decimals write the numbers of an array exactly, but at most ``most``."""
    finite = values[np.isfinite(values)]
    exact = (count for count in range(most) if np.array_equal(np.round(finite, count), finite))
    return next(exact, most)


def number(value: float, digits: int) -> str:
    """Write a number with so many decimals; with two digits if it would round to 0 or is beyond 1e12."""
    if value == -np.inf:
        return "-inf"
    if abs(value) >= _MANY or 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    # Adding 0.0 removes the minus of -0.0.
    return f"{value + 0.0:.{digits}f}"


def _some(count: int, most: int) -> list[int | None]:
    """Return which indices are shown: all, or the first and the last ones with None between."""
    if count <= most:
        return list(range(count))
    return [*range(most - 1 - _LAST), None, *range(count - _LAST, count)]


def steps_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return steps as plain values for JSON; -inf becomes the text "-inf", since JSON has no infinity."""
    return [
        {
            "name": step.name, "head": step.head, "text": step.text, "shape": list(step.values.shape),
            "rows": list(step.rows), "columns": list(step.columns), "values": _plain(step.values),
        }
        for step in steps
    ]  # fmt: skip


def _plain(values: Array) -> Any:
    if values.ndim:
        return [_plain(part) for part in values]
    return "-inf" if np.isneginf(values) else float(values)


def number_rows(steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """Yield one row for each number of each step, for CSV and Markdown."""
    for step in steps:
        for at in np.ndindex(step.values.shape):
            row, column = ".".join(map(str, at[:-1])) or "0", at[-1] if at else 0
            yield {
                "step": step.name,
                "head": step.head,
                "row": step.rows[at[0]] if step.rows else row,
                "column": step.columns[column] if step.columns else column,
                "value": _plain(np.asarray(step.values[at])),
            }
