"""Pictures of steps: matrices as grids of numbers or of shades, and lines. SVG needs no other package."""

from __future__ import annotations

import struct
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from attnbench.explained.steps import DIGITS, Step, grid, short
from attnbench.results.targets import FileKind, check_target
from attnbench.types.errors import BadInput
from attnbench.types.words import clean

if TYPE_CHECKING:
    from attnbench.types.rule import Array

ENDINGS = (".png", ".svg")
Panel = tuple[float, float, str]
"""Width, height, and the SVG of a part of the picture that begins at (0, 0)."""
PICTURE = FileKind("a picture", b"Written by attnbench explain.")
_PNG_HEADER = 33
"""The bytes of the signature and of the first chunk."""
_WIDTH = 1120
_CELL, _ROW, _MANY = 54, 26, 16
"""The width and the height of a cell with a number, and the most cells of a side that have numbers."""
_LARGEST = 900
"""The largest side of a matrix in pixels, for many tokens: 256 of them get cells of 3 pixels."""
_MOST_CELLS = 2**17
_LETTER = 6.5
"""The width of a letter in pixels; a fallback font may be wider."""
_LIGHT, _MIDDLE, _DARK = (np.array(rgb) for rgb in ((255, 255, 255), (107, 174, 214), (8, 48, 107)))
_LINES = ("#08519c", "#d94801", "#238b45", "#6a51a3", "#b30000", "#525252")
_BOX = 210, 150


def check_picture(path: Path, *, force: bool) -> None:
    """Raise :class:`BadInput` if a picture can't be written to a file, or would replace another file."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"{str(path)!r}: give a file that ends in {' or '.join(ENDINGS)}")
    check_target(path, PICTURE, force=force)


def draw(steps: Sequence[Step], title: str, path: Path) -> bytes:
    """Return a picture of steps in the format that the name of a file ends in.

    Raises:
        BadInput: there is nothing to draw, or too much, or a package is missing.
    """
    text = svg(steps, title)
    if path.suffix.lower() != ".png":
        return text.encode()
    try:
        import vl_convert
    except ImportError:
        words = "a .png needs vl-convert-python: pip install 'attnbench[html]', or give a .svg"
        raise BadInput(words) from None
    png: bytes = vl_convert.svg_to_png(text, scale=2)
    # A text after the header, as the format has it: its length, its name and words, and their checksum.
    words_of = b"tEXtComment\0" + PICTURE.mark
    chunk = struct.pack(">I", len(words_of) - 4) + words_of + struct.pack(">I", crc32(words_of))
    return png[:_PNG_HEADER] + chunk + png[_PNG_HEADER:]


def svg(steps: Sequence[Step], title: str) -> str:
    """Return a picture of steps, as many beside each other as fit.

    Raises:
        BadInput: there is nothing to draw, or too much.
    """
    cells = sum(step.values.size for step in steps if step.drawn == "shades")
    if not steps:
        raise BadInput("there are no weights to draw: --picture draws every step")
    if cells > _MOST_CELLS:
        raise BadInput(f"{cells} weights: at most {_MOST_CELLS} can be drawn; --format json prints all")
    width, height, body = _flow([_panel(step) for step in steps])
    width, height = max(width, _LETTER * 1.3 * len(title)) + 24, height + 48
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    # In a place that is narrower the picture shrinks, rather than lose its right side.
    style = 'style="max-width: 100%; height: auto" font-family="sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><!-- {PICTURE.mark.decode()} -->'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        f'{_text(12, 22, title, font_size=14)}\n<g transform="translate(12,40)">\n{body}</g></svg>\n'
    )


def _flow(panels: Sequence[Panel]) -> Panel:
    """Put panels beside each other, as many as fit, and the next ones below them."""
    x, y, below, widest, body = 0.0, 0.0, 0.0, 0.0, ""
    for width, height, part in panels:
        if x and x + width > _WIDTH:
            x, y, below = 0, y + below, 0
        body += f'<g transform="translate({x:g},{y:g})">{part}</g>\n'
        x, below = x + width, max(below, height)
        widest = max(widest, x)
    return widest, y + below, body


def _text(x: float, y: float, words: str, anchor: str = "start", **more: object) -> str:
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{attributes}>{escape(clean(words))}</text>'


def _panel(step: Step) -> Panel:
    """Return a step: its title, its sentence, and its blocks or lines."""
    blocks = [_lines(step)] if step.drawn == "lines" else [_matrix(step, *part) for part in step.parts]
    width, height, body = _flow(blocks)
    title = _text(0, 12, step.title, font_size=12)
    lines = textwrap.wrap(clean(step.text), max(40, int(width / _LETTER)))
    width = max(width, _LETTER * (max(map(len, [step.title, *lines])) + 3))
    texts = [_text(0, 27 + 14 * at, line, fill="#444") for at, line in enumerate(lines)]
    top = 20 + 14 * len(lines)
    return width, top + height + 14, f'{title}{"".join(texts)}<g transform="translate(0,{top})">{body}</g>'


def _matrix(step: Step, label: str, array: Array) -> Panel:
    """Return a block as a grid. The darkest cell of shades is the largest number of all blocks."""
    largest = (float(step.values.max()) or 1.0) if step.drawn == "shades" else 0.0
    # Shades are never folded, so that their rows are those of the array.
    most = max(array.shape) if largest else _MANY
    (_, *heads), *rows = grid(step, array, DIGITS, most, most)
    with_numbers = most <= _MANY
    wide, high = (_CELL, _ROW) if with_numbers else (max(1, min(14, _LARGEST // most)),) * 2
    left, longest = 8 + _LETTER * max(len(row[0]) for row in rows), _LETTER * max(map(len, heads))
    turned = longest > wide
    top = 16.0 if label else 0.0
    if turned:
        top += longest * 0.64 + 12
    elif step.columns:
        top += 16
    # Labels of small cells would cover each other: a turned one takes 18 pixels.
    every = -(-18 // high)
    parts = [_text(left, 12, label)] if label else []
    for j, head in enumerate(heads if step.columns else ()):
        if j % every == 0:
            x, y = left + (j + 0.5) * wide, top - 5
            turn = {"transform": f"rotate(-40,{x:g},{y:g})"} if turned else {}
            parts.append(_text(x, y, head, "start" if turned else "middle", **turn))
    for i, (name, *cells) in enumerate(rows):
        y = top + i * high
        if i % every == 0:
            parts.append(_text(left - 5, y + high / 2 + 4, name, "end"))
        for j, text in enumerate(cells):
            x, value = left + j * wide, float(array[i, j]) if largest else 0.0
            fill, ink = colours(value / (largest or 1.0))
            size = f'x="{x:g}" y="{y:g}" width="{wide}" height="{high}"'
            tip = f"<title>{escape(f'{name} {heads[j]}')}: {value:.6g}</title>" if largest else ""
            edge = "#ddd" if with_numbers else "none"
            parts.append(f'<rect {size} fill="{fill}" stroke="{edge}">{tip}</rect>')
            # A dropped key shows no number, because 0.000 would read as a small weight.
            if with_numbers and (value or not largest):
                parts.append(_text(x + wide / 2, y + high / 2 + 4, text, "middle", fill=ink))
    bottom = top + len(rows) * high
    if largest:
        parts.append(_text(left, bottom + 15, f"white is 0, the darkest is {largest:.2g}", fill="#444"))
    right = left + len(heads) * wide + 24
    if turned:
        right += longest * 0.8
    return right, bottom + 22, "".join(parts)


def colours(share: float) -> tuple[str, str]:
    """Return the colour of a cell, from white for 0 to dark blue for 1, and of a text that contrasts."""
    low, high, way = (_LIGHT, _MIDDLE, 2 * share) if share < 0.5 else (_MIDDLE, _DARK, 2 * share - 1)
    rgb = np.rint(low + (high - low) * way).astype(int)
    # From here on white has the larger contrast (WCAG 2.1).
    return f"rgb({', '.join(map(str, rgb))})", "white" if share > 0.71 else "black"


def _lines(step: Step) -> Panel:
    """Return a chart with a line for each row, over columns on a logarithmic axis; y goes from 0 to 1."""
    (wide, high), left, top = _BOX, 34, 8
    places = np.log([float(column) for column in step.columns])
    xs = left + 8 + (places - places.min()) / (float(np.ptp(places)) or 1.0) * (wide - 16)
    parts = []
    for y in (0, 0.25, 0.5, 0.75, 1):
        at = top + high * (1 - y)
        parts.append(f'<path d="M{left} {at:g}h{wide}" stroke="#ddd"/>')
        parts.append(_text(left - 5, at + 4, f"{y:g}", "end"))
    parts += [_text(x, top + high + 16, name, "middle") for x, name in zip(xs, step.columns, strict=True)]
    for at, (name, row) in enumerate(zip(step.rows, step.values, strict=True)):
        colour, dash = _LINES[at % len(_LINES)], ("none", "6 3", "2 3")[at // len(_LINES) % 3]
        points = [(x, top + high * (1 - y)) for x, y in zip(xs, row, strict=True) if np.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="{dash}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = left + wide + 8, top + 12 + 15 * at
        parts.append(f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-dasharray="{dash}"/>')
        parts.append(_text(x + 24, y, short(name), fill=colour))
    legend = _LETTER * max(len(short(name)) for name in step.rows)
    return left + wide + 50 + legend, max(high + 30, 15 * len(step.rows)) + top, "".join(parts)
