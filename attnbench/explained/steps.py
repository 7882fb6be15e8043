"""A step of a computation, and steps as text: tables with shades, Markdown and JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from attnbench.reports.formats import as_text
from attnbench.types.words import clean

if TYPE_CHECKING:
    from attnbench.types.rule import Array

T = TypeVar("T")
Drawn = Literal["numbers", "shades", "lines"]

GAP = "…"
DIGITS = 4
"""The decimals of numbers unless asked otherwise, in text and in pictures."""
ROWS = 12
"""The number of rows of an array that are shown unless asked otherwise."""
_SHADES = " ░▒▓█"
_LONGEST_LABEL = 16
_WIDEST_SHADE = 6
"""The most columns of a terminal for a cell of a drawing in shades; names of columns are cut to one less."""
_SHADED = 64
"""The most rows of a drawing in shades."""
_LARGE = 1e12


@dataclass(frozen=True, repr=False)
class Step:
    """One array of a computation, with a sentence on how it is made.

    values: any number of axes. blocks: labels of the first axis, whose parts are shown side by side: heads,
    or batch elements; () where there is no such axis. rows, columns: labels of each part; () for none.
    drawn: how a picture shows it. ``shades`` are weights and masks, from 0 upwards, with labels; ``lines``
    has a line for each row over the numbers in the labels of columns.
    """

    name: str
    text: str
    values: Array
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    drawn: Drawn = "numbers"

    def __repr__(self) -> str:
        return steps_text((self,))

    @property
    def title(self) -> str:
        """The name and the shape."""
        return f"{self.name} ({'×'.join(map(str, self.values.shape)) or 'a number'})"

    @property
    def parts(self) -> list[tuple[str, Array]]:
        """Each block's label and matrix. Of more than two axes all but the last go down."""
        arrays = self.values if self.blocks else self.values[None]
        return [
            (label, array.reshape(-1, array.shape[-1]) if array.ndim else array[None, None])
            for label, array in zip(self.blocks or ("",), arrays, strict=True)
        ]


def steps_text(steps: Sequence[Step], *, width: int = 120, digits: int = DIGITS, rows: int = ROWS) -> str:
    """Write every step: name, shape, how it is made, numbers, and shades where it has some.

    Shades stand beside the numbers where those of all steps fit, else beneath. rows: the most rows of each
    array that are shown; those in the middle are left out first.
    """
    numbers = [
        [_numbers(step, *part, digits, width, rows) for part in _folded(step.parts, rows)] for step in steps
    ]
    shades = [
        [_shades(step, *part, width) for part in step.parts if step.drawn == "shades"] for step in steps
    ]
    beside = all(_fit(its + drawn, width) for its, drawn in zip(numbers, shades, strict=True) if drawn)
    parts = []
    for step, its, drawn in zip(steps, numbers, shades, strict=True):
        heading = textwrap.wrap(clean(f"{step.title}: {step.text}"), width, subsequent_indent="  ")
        lines = _beside([*its, *drawn], width) if beside else _beside(its, width)
        if drawn and not beside:
            lines += ["", *_beside(drawn, width)]
        parts.append("\n".join([*heading, *lines]) + "\n")
    return "\n".join(parts)


def _fit(blocks: Sequence[list[str]], width: int) -> bool:
    """Return whether blocks of lines fit beside each other."""
    return sum(max(map(columns_of, block), default=0) + 3 for block in blocks) - 1 <= width


def _folded(parts: list[tuple[str, Array]], rows: int) -> list[tuple[str, Array]]:
    """Return half as many blocks as rows are shown, since a block takes several lines."""
    return some(parts, max(3, rows // 2), (GAP, np.zeros((0, 0))))


def _beside(blocks: Sequence[list[str]], width: int) -> list[str]:
    """Put blocks of lines beside each other, as many as fit, and the next ones below them.

    Four of which three fit stand two by two.
    """
    bands = _bands(blocks, width, len(blocks))
    if len(bands) > 1:
        bands = _bands(blocks, width, -(-len(blocks) // len(bands)))
    lines: list[str] = []
    for band in bands:
        if lines:
            lines.append("")
        lines += [line.rstrip() for line in band]
    return lines


def _bands(blocks: Sequence[list[str]], width: int, most: int) -> list[list[str]]:
    """Join blocks of lines to bands of at most so many blocks."""
    bands: list[list[str]] = []
    count = 0
    for block in map(_filled, blocks):
        if bands and count < most and columns_of(bands[-1][0]) + 3 + columns_of(block[0]) <= width:
            pairs = zip_longest(bands[-1], block, fillvalue="")
            blank = " " * columns_of(bands[-1][0])
            bands[-1] = _filled([f"{left or blank}   {right}" for left, right in pairs])
            count += 1
        else:
            bands.append([f"  {line}" for line in block])
            count = 1
    return bands


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _filled(lines: Sequence[str], *, right: bool = False) -> list[str]:
    """Fill texts with blanks to one width in columns of a terminal."""
    wide = max(map(columns_of, lines), default=0)
    blanks = [" " * (wide - columns_of(line)) for line in lines]
    return [blank + line if right else line + blank for line, blank in zip(lines, blanks, strict=True)]


def grid(step: Step, array: Array, digits: int, rows: int, columns: int) -> list[list[str]]:
    """Return the cells of a block as texts, under a row of labels and after a column of labels."""
    down, across = some(range(len(array)), rows, None), some(range(array.shape[1]), columns, None)
    digits = decimals(step.values, digits)
    names = some([short(name) for name in step.rows] or [""] * len(array), rows, GAP)
    heads = some([short(name) for name in step.columns] or [""] * array.shape[1], columns, GAP)
    cells = [[GAP if None in (i, j) else number(float(array[i, j]), digits) for j in across] for i in down]
    return [["", *heads], *([name, *row] for name, row in zip(names, cells, strict=True))]


def _numbers(step: Step, label: str, array: Array, digits: int, width: int, rows: int) -> list[str]:
    """Return lines of numbers under their labels; what does not fit is left out in the middle."""
    if not array.size:
        return [label]
    most = width
    for _ in range(2):
        # The second time with as many columns as fit beside the labels.
        names, *columns = zip(*grid(step, array, digits, rows, most), strict=True)
        widest = 2 + max(columns_of(cell) for column in columns for cell in column)
        most = max(3, (width - 2 - max(map(columns_of, names))) // widest)
    filled = [_filled(column, right=True) for column in columns]
    if any(names):
        filled.insert(0, _filled(names))
    heads, *lines = ["  ".join(row) for row in zip(*filled, strict=True)]
    if step.columns:
        lines.insert(0, heads)
    return [label, *lines] if label else lines


def _shades(step: Step, label: str, array: Array, width: int) -> list[str]:
    """Return lines of shades on the scale of all blocks, under the names of columns where all of them fit."""
    from rich.cells import set_cell_size

    names = _filled([short(name) for name in step.rows[:_SHADED]])
    heads = [short(name) for name in step.columns]
    wide = min(_WIDEST_SHADE, 1 + max(map(columns_of, heads), default=1))
    room = width - columns_of(names[0]) - 4
    if len(heads) * wide > room:
        # Of many columns the cells say more than the names.
        heads, wide = [], 2
    largest = float(step.values.max()) or 1.0
    shown = array[:_SHADED, : max(3, room // wide)] / largest
    cut = "" if shown.shape == array.shape else f", the first {shown.shape[0]}×{shown.shape[1]}"
    lines = [
        f"{name} {''.join(wide * _SHADES[int(4 * share + 0.5)] for share in row)}|"
        for name, row in zip(names, shown, strict=True)
    ]
    blank = " " * columns_of(names[0])
    if heads:
        cells = (set_cell_size(head, wide - 1) for head in heads[: shown.shape[1]])
        lines.insert(0, f"{blank} {' '.join(cells)}")
    lines.append(f"{blank} 0 |{''.join(2 * shade for shade in _SHADES)}| {largest:.2g}{cut}")
    return [label, *lines] if label else lines


def short(label: str) -> str:
    """Shorten a label to 16 columns of a terminal, in which some characters take two columns."""
    from rich.cells import set_cell_size

    label = clean(label)
    if columns_of(label) <= _LONGEST_LABEL:
        return label
    return set_cell_size(label, _LONGEST_LABEL - 1).rstrip() + GAP


def decimals(values: Array, most: int) -> int:
    """Return how many decimals write the numbers of an array exactly, but at most ``most``."""
    finite = values[np.isfinite(values)]
    exact = (count for count in range(most) if np.array_equal(np.round(finite, count), finite))
    return most if (np.abs(finite) >= _LARGE).any() else next(exact, most)


def number(value: float, digits: int) -> str:
    """Write a number with so many decimals; ``~`` marks one that is rounded to 0; nothing for NaN."""
    if not np.isfinite(value):
        return "-inf" if value < 0 else ""
    if abs(value) >= _LARGE:
        return f"{value:.{digits}e}"
    # Adding 0.0 removes the minus of -0.0.
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    return f"~{text}" if value and not float(text) else text


def some(items: Sequence[T], most: int, gap: T) -> list[T]:
    """Return all items, or the first ones and the last with a gap between."""
    return list(items) if len(items) <= most else [*items[: most - 2], gap, items[-1]]


def steps_markdown(steps: Sequence[Step], *, digits: int = DIGITS, rows: int = ROWS) -> str:
    """Write every step as a heading, a sentence and a table."""
    parts = []
    for step in steps:
        lines: list[list[str]] = []
        for label, array in _folded(step.parts, rows):
            head, *block = grid(step, array, digits, rows, rows) if array.size else [[], [GAP]]
            lines = lines or [head, ["---", *["---:"] * (len(head) - 1)]]
            lines += [[f"{label} {row[0]}".strip(), *row[1:]] for row in block]
        rows_of_text = [" | ".join(as_text(cell).replace("|", "\\|") for cell in line) for line in lines]
        table = "".join(f"| {line} |\n" for line in rows_of_text)
        parts.append(f"### {clean(step.title)}\n\n{as_text(clean(step.text))}\n\n{table}")
    return "\n".join(parts)


def steps_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return steps as plain values for JSON; -inf becomes the text "-inf", since JSON has no infinity."""
    rows = []
    for step in steps:
        numbers = np.asarray(step.values).astype(object)
        values = np.where(np.isneginf(step.values), "-inf", numbers).tolist()
        rows.append(asdict(step) | {"shape": step.values.shape, "values": values})
    return rows
