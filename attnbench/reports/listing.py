"""Lists of what there is - rules, backends, suites, cases, plugins - in the format that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnbench.reports.console import bare_table, string_console, written
from attnbench.reports.formats import as_csv, as_json, as_markdown, plain
from attnbench.types.formats import Format


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
    for position, name in enumerate(columns):
        # The first column is the name that commands take, so it's never cut or folded.
        table.add_column(name, no_wrap=position == 0, overflow="fold")
    for row in rows:
        table.add_row(*(plain(row[name]) for name in columns))
    console = string_console(width, colour=colour)
    console.print(table)
    return written(console)
