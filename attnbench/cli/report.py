"""``attnbench report``: the table again, from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import format_option, trace_option
from attnbench.cli.output import print_records

if TYPE_CHECKING:
    from attnbench.reports.formats import Format


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@trace_option
@format_option
def command(files: tuple[Path, ...], trace: bool, format_: Format) -> None:
    """Print the records of stored runs: files, or folders of them."""
    from attnbench.api import load
    from attnbench.reports.judged import judge

    run = load(list(files))
    for path in run.unfinished:
        if run.paths.count(path) > 1:
            click.echo(f"{path}: a run in it was cut off; only its own file can be gone on with", err=True)
        else:
            click.echo(f"{path}: the run was cut off; go on with attnbench run --resume {path}", err=True)
    if format_ in ("json", "csv") or len(run.paths) == 1:
        print_records(run.judged, format_, trace=trace)
        return
    for path, manifest, records in zip(run.paths, run.manifests, run.by_file, strict=True):
        click.echo(f"{path}: {manifest.started}, {manifest.environment.get('cpu')}\n")
        print_records(judge(records), format_, trace=trace)
        click.echo()
