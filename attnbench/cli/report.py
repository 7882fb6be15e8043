"""``attnbench report``: the records of stored runs, on stdout and in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import (
    SHOWING,
    benchmark_json_option,
    decorated,
    force_option,
    given_options,
    record_options,
)
from attnbench.cli.output import (
    benchmark_text,
    note,
    own_format,
    print_listing,
    print_run,
    record_format,
    say,
    told_side,
    view_of,
)  # fmt: skip
from attnbench.cli.parameters import load_plugins
from attnbench.reports.formats import as_text
from attnbench.reports.units import duration
from attnbench.types.errors import BadInput
from attnbench.types.gc_paused import gc_paused

if TYPE_CHECKING:
    from attnbench.reports.run import Run
    from attnbench.results.targets import FileKind
    from attnbench.types.compared import Measured
    from attnbench.types.words import Format

_FILES = decorated(
    click.option(
        "--html", type=click.Path(path_type=Path), metavar="FILE",
        help="Also write a page with tables and charts to this file. It loads nothing from the network.",
    ),
    click.option(
        "--csv", type=click.Path(path_type=Path), metavar="FILE",
        help="Also write all columns of the records to this file.",
    ),
    click.option(
        "--markdown", type=click.Path(path_type=Path), metavar="FILE",
        help="Also write the table as Markdown to this file.",
    ),
    benchmark_json_option,
    force_option,
    *record_options,
)  # fmt: skip


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@_FILES
@click.pass_context
@gc_paused()
def command(
    ctx: click.Context,
    /,
    *,
    files: tuple[Path, ...],
    benchmark_json: Path | None,
    force: bool,
    format_: str,
    html: Path | None,
    csv: Path | None,
    markdown: Path | None,
    **showing: bool,
) -> None:
    """Print the results of stored runs: files, or folders of them.

    With a file to write, only the sentences are printed, unless an option such as --details or --format
    asks for more.

    Several runs follow one another; in JSON and CSV each row has its run in the column run. Of JSON
    files of pytest-benchmark only the times can be printed.

    \b
    attnbench report results --html report.html
    """
    from attnbench.api import loaded
    from attnbench.results.read import is_json_file

    view = view_of(showing)
    asked = {"benchmark": benchmark_json, "csv": csv, "html": html, "markdown": markdown}
    targets = {name: path for name, path in asked.items() if path is not None}
    theirs = [path for path in files if is_json_file(path)]
    if theirs:
        name = repr(str(theirs[0]))
        if len(theirs) < len(files):
            raise BadInput(f"{name} is not a run, others are: report them separately")
        if targets:
            raise BadInput(
                f"{name} is a file of pytest-benchmark and has no records: leave out the files to write"
            )
        _print_benchmarks(theirs, own_format(format_, "files of pytest-benchmark have no records"))
        return
    _check_targets(targets, files, force)
    registry = load_plugins()
    printed = record_format(format_, registry)
    run = loaded(list(files), registry)
    # The tables are in the file that is written.
    view = replace(view, brief=bool(targets) and not given_options(ctx, SHOWING))
    try:
        for flaw in run.flaws:
            say(flaw, err=True)
        print_run(run, printed, view)
    finally:
        _write(targets, files, run, view.trace)


def _check_targets(targets: dict[str, Path], runs: Sequence[Path], force: bool) -> None:
    """Raise :class:`BadInput` where a file can't be written or replaced, or is named twice or in ``runs``.

    Before all else, so that nothing is printed or overwritten in vain.
    """
    from attnbench.results.format import expand
    from attnbench.results.targets import check_target

    kinds = _kinds()
    read = {os.path.realpath(file) for file in expand(list(runs))} if targets else set()
    seen: set[str] = set()
    for name, path in targets.items():
        real = os.path.realpath(path)
        if real in read:
            raise BadInput(f"{str(path)!r} is a run to be read: name another file to write")
        if real in seen:
            raise BadInput(f"two options write {str(path)!r}: name another file for one of them")
        seen.add(real)
        check_target(path, kinds[name], force=force)
    if "html" in targets:
        from attnbench.reports.html.page import check_packages

        check_packages()


_WRITTEN = "<!-- Written by attnbench report. -->"


def _kinds() -> dict[str, FileKind]:
    from attnbench.reports.columns import KEYS
    from attnbench.reports.html.page import PAGE
    from attnbench.results.pytest_benchmark import BENCHMARKS
    from attnbench.results.targets import FileKind

    return {
        "benchmark": BENCHMARKS,
        "csv": FileKind("a CSV of records", ",".join(KEYS[:6]).encode()),
        "html": PAGE,
        "markdown": FileKind("a Markdown report", _WRITTEN.encode()),
    }


def _write(targets: dict[str, Path], stored: Sequence[Path], run: Run, trace: bool) -> None:
    """Write all files, or none."""
    from attnbench.reports.render import render_run
    from attnbench.reports.table import View
    from attnbench.results.targets import write_files

    contents: dict[Path, bytes] = {}
    said: list[str] = []
    for name, path in targets.items():
        words = [f"written to {path}"]
        if name == "benchmark":
            text, words = benchmark_text(stored, path)
        elif name == "html":
            from attnbench.reports.html.page import page

            text = page(run)
        elif name == "csv":
            text = render_run(run, "csv", View(trace=trace))
        else:
            text = f"{_WRITTEN}\n\n{render_run(run, 'markdown', View(trace=trace))}"
        contents[path] = text.encode()
        said += words
    write_files(contents)
    for sentence in said:
        note(sentence)


def _print_benchmarks(files: Sequence[Path], format_: Format) -> None:
    """Print the times of files of pytest-benchmark: the median and the quartiles."""
    runs = told_side(files)
    if format_ in ("json", "csv"):
        print_listing([row for run in runs for row in times_rows(run)], (), format_)
        return
    for run in runs:
        rows = [
            row | {"time": _time(row["median_ms"]), "q1": _time(row["q1_ms"]), "q3": _time(row["q3_ms"])}
            for row in times_rows(run)
        ]
        columns = ("case", "backend", "status", "time", "q1", "q3", "reason")
        head = f"{run.path}: {run.started}, {run.environment.get('cpu')}\n"
        say(as_text(head) if format_ == "markdown" else head)
        print_listing(rows, [name for name in columns if any(row[name] for row in rows)], format_)
        say()
    note("attnbench compare and attnbench history show how such files differ")


def times_rows(run: Measured) -> list[dict[str, Any]]:
    """Return a row for each cell, in ms: the median over processes, and the quartiles of the calls of one."""
    return [
        {
            "case": cell.case,
            "rule": cell.rule,
            "backend": cell.backend,
            "status": cell.status,
            "reason": cell.reason,
            "median_ms": median(cell.processes_ns) / 1e6 if cell.processes_ns else None,
            "q1_ms": cell.calls_ns[1] / 1e6 if cell.calls_ns else None,
            "q3_ms": cell.calls_ns[3] / 1e6 if cell.calls_ns else None,
            "processes": len(cell.processes_ns),
            "started": run.started,
            "commit": run.commit,
            "path": str(run.path),
        }
        for cell in run.cells
    ]


def _time(ms: float | None) -> str:
    """Return a time in three digits with its unit; "" for None."""
    return "" if ms is None else duration(ms, ms / 100)
