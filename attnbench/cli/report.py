"""``attnbench report``: the table again, from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.benchmark_json import benchmark_json_option, check_benchmark_json, write_benchmark_json
from attnbench.cli.loudness import note
from attnbench.cli.options import record_format_option, trace_option
from attnbench.cli.output import print_listing, print_records
from attnbench.cli.plugins_here import load_plugins, plugin_option
from attnbench.cli.record_format import own_format, print_run, record_format
from attnbench.cli.report_files import Files, by_run, file_options
from attnbench.types.errors import BadInput, go_on_words

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry
    from attnbench.reports.run import Run
    from attnbench.types.formats import Format
    from attnbench.types.reporter import Reporter


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
    from attnbench.stored.read import is_json_file

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
    from attnbench.reports.times import WORDS, times_rows, times_words
    from attnbench.stored.read import read_side

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
