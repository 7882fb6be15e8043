"""Records in one of attnbench's formats, or by the reporter of a plugin."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from attnbench.plugins.calling import Raised, call, traced
from attnbench.plugins.registry import Entry
from attnbench.reports.answer import (
    SUMMARY,
    Grid,
    backends_grid,
    busy_text,
    cases_grid,
    key_text,
    totals_grid,
)
from attnbench.reports.columns import KEYS, NAMES, in_order, name_text, record_row, table_columns
from attnbench.reports.formats import as_csv, as_json, as_markdown, as_text
from attnbench.reports.judged import Judged
from attnbench.reports.names import shared_words
from attnbench.reports.table import View, table
from attnbench.stats.answer import Answer
from attnbench.types.errors import PluginFailed
from attnbench.types.extensions import Reporter, Rows, RunFacts
from attnbench.types.formats import Format
from attnbench.types.record import Manifest
from attnbench.types.words import clean, printable


def reported(entry: Entry[Reporter], rows: Rows, runs: RunFacts) -> str:
    """The text of a reporter, with a newline at its end.

    Raises:
        PluginFailed: the reporter raised, or returned no text.
    """
    named = f"{entry.source}: the reporter {entry.record.name!r}"
    still = "the records are in their files: attnbench report prints them in another --format"
    try:
        with traced(named):
            text = call(entry.record.render, rows, runs)
    except Raised as failure:
        raise PluginFailed(f"plugin {named} raised {failure}; {still}") from failure
    if not isinstance(text, str):
        raise PluginFailed(f"plugin {named} gave {clean(text)}, where a text is needed; {still}")
    text = printable(text.replace("\r\n", "\n"))
    return text if text.endswith("\n") or not text else f"{text}\n"


def run_facts(
    manifests: Sequence[Manifest], paths: Sequence[Path], unfinished: Collection[Path]
) -> list[dict[str, Any]]:
    """The facts of each run for a reporter; see :class:`~attnbench.types.extensions.Reporter`.

    paths: the files of the runs. unfinished: the files with a run that was cut off.
    """
    from msgspec import to_builtins

    return [
        to_builtins(manifest) | {"path": str(path), "finished": path not in unfinished}
        for manifest, path in zip(manifests, paths, strict=True)
    ]


def render(
    judged: Sequence[Judged],
    format: Format,
    view: View | None = None,
    answer: Answer | None = None,
) -> str:
    """Render records as text that ends in a newline.

    JSON and CSV have every column of :data:`attnbench.reports.columns.COLUMNS` and of plugins, in full.
    Markdown has the answer, then the columns and the order of the table, and the status. view: of the table;
    its trace is of Markdown too, and its summary of Markdown alone. answer: of the run.
    """
    view = view or View()
    if format == "table":
        return table(judged, answer, view)
    if format == "markdown":
        answered = _markdown_answer(judged, answer)
        return answered if view.summary else answered + _markdown(judged, view.trace)
    rows = [record_row(one) for one in judged]
    return as_json(rows) if format == "json" else as_csv(rows, list(rows[0]) if rows else KEYS)


def render_summary(rows: Sequence[dict[str, Any]], format: Literal["json", "csv"]) -> str:
    """Render the rows of a summary."""
    return as_json(rows) if format == "json" else as_csv(rows, list(SUMMARY))


def _markdown_answer(judged: Sequence[Judged], answer: Answer | None) -> str:
    if answer is None or not answer.leads:
        return ""
    backends, others = backends_grid(judged, answer)
    totals = totals_grid(judged, answer)
    shared = shared_words(one.record.case for one in judged)
    first = f"All cases: {shared}" if shared else ""
    parts = [
        first,
        _grid(cases_grid(judged, answer)),
        _grid(backends),
        as_text(others),
        key_text(answer),
        "" if totals is None else _grid(totals),
        busy_text(answer),
    ]
    return "".join(f"{part.rstrip()}\n\n" for part in parts if part)


def _grid(grid: Grid) -> str:
    rows = [dict(zip(grid.heads, row, strict=True)) for row in grid.rows]
    return as_markdown(rows, grid.heads, right=grid.right)


def _markdown(judged: Sequence[Judged], trace: bool) -> str:
    columns = table_columns(judged)
    rows = [
        {"case": one.record.case, NAMES: name_text(one.record), "status": one.record.status}
        | {column.head: column.text(one) for column in columns}
        | {"reason": one.record.reason, "ran": ", ".join(one.record.ran)}
        for one in in_order(judged)
    ]
    heads = ["case", NAMES, "status", *(column.head for column in columns), "reason"]
    heads += ["ran"] if trace else []
    return as_markdown(rows, heads, right=[c.head for c in columns if c.justify == "right"])
