"""``attnbench report``: the records of stored runs, on stdout and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import click

from attnbench.cli.finish import (
    benchmark_json_option,
    check_benchmark_json,
    own_format,
    print_run,
    record_format,
    write_benchmark_json,
)
from attnbench.cli.options import decorated, record_format_option, trace_option
from attnbench.cli.output import note, print_listing, print_records
from attnbench.cli.plugins_here import load_plugins, plugin_option
from attnbench.reports.units import duration
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadInput, go_on_words

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry
    from attnbench.reports.judged import Judged
    from attnbench.reports.run import Run
    from attnbench.types.extensions import Reporter
    from attnbench.types.formats import Format


WORDS = ("case", "backend", "status", "time", "quartiles", "reason")
"""Of a table and Markdown."""


def times_rows(run: Measured) -> list[dict[str, Any]]:
    """A row for each cell, in ms: the median over processes, and the quartiles of a lone one's calls."""
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


def times_words(run: Measured) -> list[dict[str, str]]:
    """The same for people, under :data:`WORDS`: a time in three digits, with its unit."""
    return [
        {
            "case": cell.case,
            "backend": cell.backend,
            "status": cell.status,
            "time": _time(median(cell.processes_ns)) if cell.processes_ns else "",
            "quartiles": _quartiles(cell),
            "reason": cell.reason,
        }
        for cell in run.cells
    ]


def _quartiles(cell: Cell) -> str:
    return f"{_time(cell.calls_ns[1])} to {_time(cell.calls_ns[3])}" if cell.calls_ns else ""


def _time(ns: float) -> str:
    return duration(ns / 1e6, ns / 1e6 / 100)


Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--html", type=click.Path(path_type=Path), metavar="FILE",
        help="Write a page to this file too: sentences, tables, charts. It loads nothing from anywhere.",
    ),
    click.option(
        "--csv", type=click.Path(path_type=Path), metavar="FILE",
        help="Write all columns of the records to this file too.",
    ),
    click.option(
        "--markdown", type=click.Path(path_type=Path), metavar="FILE",
        help="Write the table as Markdown to this file too.",
    ),
)  # fmt: skip


def file_options(command: Command) -> Command:
    """Give a command the options that :class:`Files` is made of."""
    return decorated(command, _OPTIONS)


@dataclass(frozen=True)
class Files:
    """The files to write, None for those that aren't asked for."""

    html: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None

    def check(self, runs: Sequence[Path]) -> None:
        """Raise :class:`BadInput` where one can't be written or made, is named twice, or is one of ``runs``.

        Before all else, so that nothing is printed or overwritten in vain.
        """
        from attnbench.results.format import expand

        named = [path for path in (self.html, self.csv, self.markdown) if path is not None]
        read = {file.resolve() for file in expand(list(runs))} if named else set()
        for path in named:
            if path.is_dir():
                raise BadInput(f"{str(path)!r} is a folder: name a file to write")
            if not path.parent.is_dir():
                raise BadInput(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
            if path.resolve() in read:
                raise BadInput(f"{str(path)!r} is one of the runs: name another file to write")
            if sum(path.resolve() == other.resolve() for other in named) > 1:
                raise BadInput(f"{str(path)!r} is named for two formats: give each a file of its own")
        if self.html is not None:
            from attnbench.reports.html.page import check_packages

            check_packages()

    def write(self, run: Run, *, trace: bool) -> None:
        """Write the files.

        Raises:
            BadInput: a file cannot be written, or a package that a page needs is not installed.
        """
        from attnbench.reports.render import render

        if self.csv is not None:
            _write(self.csv, render(run.judged, "csv"))
        if self.markdown is not None:
            _write(self.markdown, _markdown(run, trace=trace))
        if self.html is not None:
            from attnbench.reports.html.page import page

            _write(self.html, page(run))


def by_run(run: Run) -> Iterator[tuple[str, list[Judged]]]:
    """Each run of several: a line that says what it is, and its records."""
    for path, manifest, judged in zip(run.paths, run.manifests, run.judged_by_file, strict=True):
        yield f"{path}: {manifest.started}, {manifest.environment.get('cpu')}", judged


def _markdown(run: Run, *, trace: bool) -> str:
    """As ``--format markdown`` prints it: a table for each run, under a line where there are several."""
    from attnbench.reports.render import render

    if len(run.paths) == 1:
        return render(run.judged, "markdown", trace=trace)
    parts = (f"{head}\n\n{render(judged, 'markdown', trace=trace)}" for head, judged in by_run(run))
    return "\n".join(parts)


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise BadInput(f"can't write {str(target)!r}: {failure.strerror}") from failure
    note(f"written to {target}")


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@file_options
@benchmark_json_option
@plugin_option
@trace_option
@record_format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    files: tuple[Path, ...],
    benchmark_json: Path | None,
    trace: bool,
    format_: str,
    **written: Path | None,
) -> None:
    """Print the records of stored runs: files, or folders of them.

    Several runs stand one after the other; in JSON and CSV the column run says which a row is of. Of JSON
    files of pytest-benchmark, which hold no records, their times are printed.

    \b
    attnbench report results --html report.html
    """
    from attnbench.api import loaded
    from attnbench.results.read import is_json_file

    theirs = [path for path in files if is_json_file(path)]
    if theirs:
        if len(theirs) < len(files):
            raise BadInput(f"{str(theirs[0])!r} is pytest-benchmark's, others are runs: report either alone")
        if benchmark_json is not None:
            raise BadInput(f"--benchmark-json: {str(theirs[0])!r} is pytest-benchmark's already")
        if any(written.values()):
            raise BadInput(f"{str(theirs[0])!r} is pytest-benchmark's and holds no records: see --format")
        _print_benchmarks(theirs, own_format(format_, "a file of pytest-benchmark has no records"))
        return
    check_benchmark_json(benchmark_json)
    targets = Files(**written)
    targets.check(files)
    registry = load_plugins()
    printed = record_format(ctx, format_, registry)
    run = loaded(list(files), registry)
    try:
        _print_runs(run, printed, trace=trace)
    finally:
        if benchmark_json is not None:
            write_benchmark_json(files, benchmark_json)
        targets.write(run, trace=trace)


def _print_runs(run: Run, format_: Format | Entry[Reporter], *, trace: bool) -> None:
    for path in run.unfinished:
        if run.paths.count(path) > 1:
            click.echo(f"{path}: a run in it was cut off; only its own file can be gone on with", err=True)
        else:
            live = bool(run.manifests[run.paths.index(path)].sides)
            go_on = go_on_words(path, live=live, command="attnbench run")
            click.echo(f"{path}: the run was cut off; {go_on}", err=True)
    if not isinstance(format_, str) or format_ in ("json", "csv") or len(run.paths) == 1:
        print_run(run, format_, trace=trace)
        return
    for head, judged in by_run(run):
        click.echo(f"{head}\n")
        print_records(judged, format_, trace=trace)
        click.echo()


def _print_benchmarks(files: Sequence[Path], format_: Format) -> None:
    from attnbench.results.read import read_side

    runs = read_side(files)
    for run in runs:
        for problem in run.problems:
            click.echo(problem, err=True)
    if format_ in ("json", "csv"):
        rows = [row for run in runs for row in times_rows(run)]
        print_listing(rows, list(rows[0]) if rows else WORDS, format_)
        return
    for run in runs:
        words = times_words(run)
        click.echo(f"{run.path}: {run.started}, {run.environment.get('cpu')}\n")
        print_listing(words, [head for head in WORDS if any(row[head] for row in words)], format_)
        click.echo()
    note("attnbench compare and history say what such files differ by")
