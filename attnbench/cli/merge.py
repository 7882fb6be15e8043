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

    Each run keeps its manifest, which names machine and software; a run that is given twice is kept once.
    It lists shards (run --shard) that are missing, cut off, repeated or measured differently.

    \b
    attnbench merge laptop.jsonl server.jsonl --out both.jsonl
    attnbench report both.jsonl
    attnbench merge shards --out all.jsonl
    """
    from attnbench.compare.shards import shard_notes
    from attnbench.results.format import expand
    from attnbench.results.merge import merge
    from attnbench.results.read import lacks_digests
    from attnbench.types.errors import BadInput

    if out.suffix != ".jsonl":
        raise BadInput(f"--out {str(out)!r}: give the new file a name that ends in .jsonl")
    merged = merge(expand(files), out)
    undigested = (words for run in merged.runs for words in lacks_digests(run))
    for said in dict.fromkeys((*merged.notes, *undigested, *shard_notes(merged.runs))):
        say(said, err=True)
    for run in merged.runs:
        records = count_of(len(run.records), "record")
        cut = ", cut off" if run.cut_off else ""
        part = f"shard {run.manifest.shard}, " if run.manifest.shard else ""
        note(f"{run.manifest.run_id}: {part}{run.manifest.environment.get('cpu')}, {records}{cut}")
    note(f"stored in {out}")
