"""``attnbench merge``: runs of several machines in one file."""

from __future__ import annotations

from pathlib import Path

import click

from attnbench.cli.output import note, say
from attnbench.types.words import count_of


@click.command("merge")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The new file, *.jsonl."
)
def command(files: tuple[Path, ...], out: Path) -> None:
    """Combine stored runs into one file; each run stays separate. Give files or folders.

    Each run keeps its manifest, and with it its machine and software; a run that is given twice is kept once.

    \b
    attnbench merge laptop.jsonl server.jsonl --out both.jsonl
    attnbench report both.jsonl
    """
    from attnbench.results.format import expand
    from attnbench.results.merge import merge
    from attnbench.types.errors import BadInput

    if out.suffix != ".jsonl":
        raise BadInput(f"--out {str(out)!r}: give the new file a name that ends in .jsonl")
    merged = merge(expand(files), out)
    for said in merged.notes:
        say(said, err=True)
    for run in merged.runs:
        records = count_of(len(run.records), "record")
        cut = "" if run.finished else ", cut off"
        note(f"{run.manifest.run_id}: {run.manifest.environment.get('cpu')}, {records}{cut}")
    note(f"stored in {out}")
