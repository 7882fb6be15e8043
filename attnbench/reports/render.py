"""Records in one of attnbench's formats, or by the reporter of a plugin."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from attnbench.plugins.calling import Raised, call, traced
from attnbench.plugins.registry import Entry
from attnbench.reports.columns import KEYS, NAMES, in_order, name_text, record_row, table_columns
from attnbench.reports.formats import as_csv, as_json, as_markdown
from attnbench.reports.judged import Judged
from attnbench.types.errors import PluginFailed
from attnbench.types.extensions import Reporter, Rows, RunFacts
from attnbench.types.formats import Format
from attnbench.types.record import Manifest
from attnbench.types.words import clean


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
    judged: Sequence[Judged], format: Format, *, width: int = 120, colour: bool = False, trace: bool = False
) -> str:
    """Render records as text that ends in a newline.

    JSON and CSV have every column of :data:`attnbench.reports.columns.COLUMNS` and of plugins, in full.
    Markdown has the columns and the order of the table, and the status. width, colour: of the table. trace:
    show the operations of each call; JSON and CSV always do.
    """
    if format == "table":
        from attnbench.reports.table import table

        return table(judged, width, colour=colour, trace=trace)
    if format == "markdown":
        return _markdown(judged, trace)
    rows = [record_row(one) for one in judged]
    return as_json(rows) if format == "json" else as_csv(rows, list(rows[0]) if rows else KEYS)


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
