"""Rows of plain values as JSON, CSV, Markdown or a table for a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from attnbench.types.words import Format, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_MARKUP = re.compile(
    r"<(?=[A-Za-z/!?])|&(?=#?\w+;)|\\|\](?=[(\[:])|:(?=//)|(?<=\bwww)\."
    r"|(?<!\w)@(?=\w)|(?<=\w)@(?=[\w-]+\.)|#(?=\d)|(?<=\bGH)-(?=\d)",
    re.IGNORECASE,
)
"""The places where HTML, a link or an image would begin, or text would become a link.

In a comment GitHub links people and issues too: @name, a@b.c, #12, GH-12. It finds them after it resolved
entities, so an empty space (&#8203;) divides them.
"""
_ENTITIES = {
    "<": "&lt;", "&": "&amp;", ":": "&#58;", ".": "&#46;",
    "@": "@&#8203;", "#": "#&#8203;", "-": "-&#8203;",
}  # fmt: skip
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")
"""The beginning of a cell that a spreadsheet computes."""


def as_json(rows: Sequence[dict[str, Any]]) -> str:
    """A list of objects, one a line. Values must be finite: JSON has no NaN."""
    lines = (_json(row) for row in rows)
    return "[\n" + ",\n".join(f" {line}" for line in lines) + "\n]\n" if rows else "[]\n"


def _json(row: dict[str, Any]) -> str:
    """Return a row as JSON; what is not printable stands in JSON's own escapes."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def as_csv(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Comma-separated values under a line of names; empty for None.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_exact(row[name]) for name in columns] for row in rows)
    return out.getvalue()


def as_markdown(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], *, right: Collection[str] = ()
) -> str:
    """A table as GitHub shows it, with numbers and the columns ``right`` aligned to the right.

    Bars and tags in texts are escaped, so a reason like "got <class 'int'>" stays whole.
    """
    cells = [[as_text(plain(row[name])).replace("|", "\\|") for name in columns] for row in rows]
    rule = ["---:" if name in right or _numeric(rows, name) else "---" for name in columns]
    lines = [columns, rule, *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_text(words: str) -> str:
    """Escape words from files, so that Markdown takes none of them for HTML, a link or an image."""
    return _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), words)


def _numeric(rows: Sequence[dict[str, Any]], name: str) -> bool:
    """Return whether a column has numbers."""
    return any(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)


def _exact(value: Any) -> str:
    if isinstance(value, int | float):
        return repr(value) if isinstance(value, float) else plain(value)
    text = plain(value)
    return f"'{text}" if _FORMULA.match(text) else text


def plain(value: Any) -> str:
    """A value as the text of a cell: six digits of a number, lists joined, "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return printable(" ".join(str(value).split()))


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity in a row by None, which JSON has."""
    return {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in row.items()}


NARROWEST = 60
"""The columns of the narrowest console; narrower tables cannot be read."""


def string_console(width: int, *, colour: bool = False) -> Console:
    """A console of ``width`` columns (60 at least) that prints to memory; see :func:`written`."""
    from rich.console import Console

    return Console(
        file=io.StringIO(), width=max(width, NARROWEST), force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip


def written(console: Console) -> str:
    """The text printed on a :func:`string_console`, without spaces at the ends of lines."""
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


GAP = 2
"""Blanks between two columns of a table, and before the first."""


def bare_table(gap: int = GAP) -> Table:
    """A table without lines. gap: blanks between its columns."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def print_indented(console: Console, what: str | Table, style: str = "dim") -> None:
    """Print a text or a table a little to the right."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(what, style=style) if isinstance(what, str) else what, (0, 0, 0, GAP)))


def listing(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    format: Format,
    *,
    width: int = 120,
    colour: bool = False,
) -> str:
    """Render rows as text that ends in a newline; JSON and CSV have all columns, not just ``columns``."""
    if format == "table":
        return _table(rows, columns, width, colour)
    if format == "markdown":
        return as_markdown(rows, columns)
    if format == "json":
        return as_json(rows)
    return as_csv(rows, list(rows[0]) if rows else columns)


_SHORT = 10
"""Cells of a listing with so many characters are not folded."""


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str], width: int, colour: bool) -> str:
    table = bare_table()
    cells = {name: [plain(row[name]) for row in rows] for name in columns}
    numeric = {name for name in columns if _numeric(rows, name)}
    widths = {name: max(map(len, (name, *cells[name]))) for name in columns}
    # The first column is a name that commands take, so it is never folded. A folded number would be read as
    # the smaller one in its first line, and a time must keep its unit.
    whole = {*columns[:1], *numeric, *(name for name in columns if widths[name] <= _SHORT)}
    least = {
        name: widths[name] if name in whole else max(map(len, " ".join((name, *cells[name])).split(" ")))
        for name in columns
    }
    while sum(widths.values()) + GAP * (len(columns) - 1) > width:
        wide = [name for name in columns if widths[name] > least[name]]
        if not wide:
            break
        widths[max(wide, key=lambda name: widths[name])] -= 1
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in numeric else "left"
        table.add_column(name, no_wrap=name in whole, width=widths[name], justify=justify)
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    # Lines get longer where the longest words do not fit: half a word cannot be copied.
    console = string_console(sum(widths.values()) + GAP * len(columns), colour=colour)
    console.print(table)
    return written(console)
