"""Records in one of attnbench's formats, or by the reporter of a plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnbench.plugins.calling import Raised, call, traced
from attnbench.plugins.registry import Entry
from attnbench.reports.answer import Grid, numbered, over_columns
from attnbench.reports.columns import KEYS, KIND, NAMES, OVER, in_order, name_text, record_row, table_columns
from attnbench.reports.formats import as_markdown, as_text, listing
from attnbench.reports.judged import JudgedRecord, ReportPart, several_kinds
from attnbench.reports.names import shared_words, short_names
from attnbench.reports.overview import Line, answer_blocks
from attnbench.reports.run import Run
from attnbench.reports.table import View, table
from attnbench.types.errors import PluginFailed
from attnbench.types.extensions import Reporter, Rows, RunFacts
from attnbench.types.words import Format, clean, printable


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


def run_facts(run: Run) -> list[dict[str, Any]]:
    """The facts of each run for a reporter; see :class:`~attnbench.types.extensions.Reporter`."""
    from msgspec import to_builtins

    return [
        to_builtins(manifest) | {"path": str(path), "finished": path not in run.unfinished}
        for manifest, path in zip(run.manifests, run.paths, strict=True)
    ]


def render(parts: Sequence[ReportPart], format: Format, view: View | None = None) -> str:
    """Render a report as text that ends in a newline.

    JSON and CSV have every column of :data:`attnbench.reports.columns.COLUMNS` and of plugins, in full.
    Markdown has the answer, then the columns and the order of the table, and the status. view: of the table;
    its trace is of Markdown too, and its summary of Markdown alone.
    """
    view = view or View()
    if format == "table":
        return table(parts, view)
    judged = [one for part in parts for one in part.judged]
    if format == "markdown":
        answered = _markdown_answer(parts, details=view.details)
        if view.summary:
            return answered
        shared = "" if answered else shared_words(one.record.case for one in judged)
        head = f"All cases: {as_text(shared)}.\n\n" if shared else ""
        return answered + head + _markdown(judged, parts, view.trace)
    return listing([record_row(one) for one in judged], KEYS, format)


def render_run(run: Run, format: Format, view: View) -> str:
    """Render the reports of runs, each under a line that names its file if there are several.

    JSON and CSV have the records of all runs in one list.
    """
    if format in ("json", "csv"):
        return render([ReportPart(run.judged)], format)
    texts = [(printable(run.head_of(parts[0])), render(parts, format, view)) for parts in run.reports]
    if len(texts) == 1:
        return texts[0][1]
    return "\n".join(f"{as_text(head) if format == 'markdown' else head}\n\n{text}" for head, text in texts)


def _markdown_answer(parts: Sequence[ReportPart], *, details: bool) -> str:
    if not any(answer.leads for _, answer, _ in numbered(parts)):
        return ""
    return "".join(
        f"{_grid(block) if isinstance(block, Grid) else _line(block)}\n"
        for block in answer_blocks(parts, details=details)
    )


def _line(line: Line) -> str:
    return f"**{as_text(line.text)}**\n" if line.style == "bold" else f"{as_text(line.text)}\n"


def _grid(grid: Grid) -> str:
    rows = [dict(zip(grid.heads, row, strict=True)) for row in grid.rows]
    above = f"{as_text(grid.above)}\n\n" if grid.above else ""
    return above + as_markdown(rows, grid.heads, right=grid.right)


def _markdown(judged: Sequence[JudgedRecord], parts: Sequence[ReportPart], trace: bool) -> str:
    columns = over_columns(table_columns(judged, over=OVER), parts)
    names = short_names(one.record.case for one in judged)
    rows = [
        {"case": names[one.record.case], KIND: one.device_kind, NAMES: name_text(one.record)}
        | {"status": one.record.status}
        | {column.head: column.cell(one) for column in columns}
        | {"reason": one.record.reason, "ran": ", ".join(one.record.ran)}
        for one in in_order(judged)
    ]
    heads = ["case", *([KIND] if several_kinds(judged) else []), NAMES, "status"]
    heads += [*(column.head for column in columns), "reason", *(["ran"] if trace else [])]
    return as_markdown(rows, heads, right=[c.head for c in columns if c.dtype != "str"])
