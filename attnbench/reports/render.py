"""Records in the format that was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.reports.formats import Format, as_csv, as_json, as_markdown
from attnbench.reports.rows import COLUMNS, record_row
from attnbench.types.record import Record

_MARKDOWN = (
    "case", "backend", "status", "median_ms", "ratio", "error_budget", "max_error_budget", "tflops", "gbps",
    "peak_extra_bytes", "reason",
)  # fmt: skip


def render(records: Sequence[Record], format: Format, *, width: int = 120, colour: bool = False) -> str:
    """Records as text that ends in a newline.

    JSON and CSV have every column of :data:`attnbench.reports.rows.COLUMNS`, Markdown the ones to look at;
    width and colour are for the table.
    """
    if format == "table":
        from attnbench.reports.table import table

        return table(records, width, colour=colour)
    rows = [record_row(record) for record in records]
    if format == "json":
        return as_json(rows)
    if format == "csv":
        return as_csv(rows, COLUMNS)
    return as_markdown(rows, _MARKDOWN)
