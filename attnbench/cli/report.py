"""``attnbench report``: the table again, from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import print_records

if TYPE_CHECKING:
    from attnbench.reports.formats import Format


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@format_option
def command(files: tuple[Path, ...], format_: Format) -> None:
    """Print the records of stored runs: files, or folders of them."""
    from attnbench.api import load

    run = load(list(files))
    for path in run.unfinished:
        click.echo(f"{path}: the run was cut off; go on with attnbench run --resume {path}", err=True)
    if format_ != "table" or len(run.paths) == 1:
        print_records(run.records, format_)
        return
    for path in run.paths:
        one = load(path)
        (manifest,) = one.manifests
        click.echo(f"{path}: {manifest.started}, {manifest.environment.get('cpu')}\n")
        print_records(one.records, format_)
        click.echo()
