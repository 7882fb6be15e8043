"""Lists of what there is - rules, backends, suites, cases, plugins - in the format that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnbench.reports.console import bare_table, string_console, written
from attnbench.reports.formats import as_csv, as_json, as_markdown, plain
from attnbench.types.formats import Format

_GAP = 2
"""Columns of space between two of a table."""


def listing(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    format: Format,
    *,
    width: int = 120,
    colour: bool = False,
) -> str:
    """Rows as text that ends in a newline; a table and Markdown show ``columns``, the others all."""
    if format == "table":
        return _table(rows, columns, width, colour)
    if format == "markdown":
        return as_markdown(rows, columns)
    if format == "json":
        return as_json(rows)
    return as_csv(rows, list(rows[0]) if rows else columns)


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str], width: int, colour: bool) -> str:
    table = bare_table()
    cells = {name: [plain(row[name]) for row in rows] for name in columns}
    least = 0
    for position, name in enumerate(columns):
        numeric = any(_is_number(row[name]) for row in rows)
        # The first column is the name that commands take, so it's never folded; nor is a number, which
        # would be read as the smaller one that stands in its first line.
        whole = position == 0 or numeric
        longest = max(
            len(word) for cell in (name, *cells[name]) for word in ([cell] if whole else cell.split(" "))
        )
        table.add_column(name, no_wrap=whole, min_width=longest, justify="right" if numeric else "left")
        least += longest + _GAP
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    # Where the longest words don't fit beside each other lines get longer: half a word can't be copied.
    console = string_console(max(width, least), colour=colour)
    console.print(table)
    return written(console)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
