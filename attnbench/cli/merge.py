"""``attnbench merge``: runs of several machines in one file, and what their shards lack or do not share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from attnbench.cases.select import shard_number
from attnbench.cli.output import note, say
from attnbench.compare.environment import unlike
from attnbench.results.format import StoredRun
from attnbench.results.read import facts_of, flaws_of
from attnbench.types.record import Shard
from attnbench.types.words import count_of


@click.command("merge")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The new file, *.jsonl."
)
def command(files: tuple[Path, ...], out: Path) -> None:
    """Combine stored runs into one file; each run stays separate. Give files or folders.

    Each run keeps its manifest, which names machine and software; a run that is given twice is kept once.
    Of shards (run --shard), merge lists those missing, cut off, measured twice or differently.

    \b
    attnbench merge laptop.jsonl server.jsonl --out both.jsonl
    attnbench report both.jsonl
    attnbench merge shards --out all.jsonl
    """
    from attnbench.results.format import expand
    from attnbench.results.merge import merge
    from attnbench.types.errors import BadInput

    if out.suffix != ".jsonl":
        raise BadInput(f"--out {str(out)!r}: give the new file a name that ends in .jsonl")
    merged = merge(expand(files), out)
    for said in dict.fromkeys((*merged.notes, *shard_notes(merged.runs))):
        say(said, err=True)
    for run in merged.runs:
        records = count_of(len(run.records), "record")
        cut = "" if run.finished else ", cut off"
        part = f"shard {run.manifest.shard}, " if run.manifest.shard else ""
        note(f"{run.manifest.run_id}: {part}{run.manifest.environment.get('cpu')}, {records}{cut}")
    note(f"stored in {out}")


def shard_notes(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield sentences on the shards among runs; other runs are left alone."""
    selections: dict[tuple[int, tuple[str, ...]], dict[int, list[StoredRun]]] = {}
    for run in runs:
        if (shard := run.manifest.shard) is not None:
            alone = sum(other.path == run.path for other in runs) == 1
            yield from flaws_of(run, alone=alone)
            shards = selections.setdefault((shard.of, tuple(shard.cases)), defaultdict(list))
            shards[shard.number].append(run)
    if len(selections) > 1:
        parts = [f"{len(cases)} cases ({_names(shards, of)})" for (of, cases), shards in selections.items()]
        yield f"the shards are not of one selection: {'; '.join(parts)}"
    for (of, cases), shards in selections.items():
        head = count_of(len(cases), "case") + (f" in {count_of(of, 'shard')}" if of else "")
        for said in (*_missing(of, cases, shards), *_doubled(of, shards), *_unlike(of, shards)):
            yield f"{head}: {said}"


def _missing(of: int, cases: Iterable[str], shards: dict[int, list[StoredRun]]) -> Iterator[str]:
    there = {case for several in shards.values() for run in several for case in run.manifest.cases}
    lost = [case for case in cases if case not in there]
    if lost:
        shown = f"{_names({shard_number(case, of) for case in lost}, of)}, with " if of else ""
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield f"missing {shown}{count_of(len(lost), 'case')}: {lost[0]}{more}"


def _doubled(of: int, shards: dict[int, list[StoredRun]]) -> Iterator[str]:
    for number, several in sorted(shards.items()):
        if of and len(several) > 1:
            names = ", ".join(run.manifest.run_id for run in several)
            yield f"{number}/{of} was measured {len(several)} times, and all are kept: {names}"


def _unlike(of: int, shards: dict[int, list[StoredRun]]) -> Iterator[str]:
    runs = [(number, run.manifest) for number, several in sorted(shards.items()) for run in several]
    facts = [
        facts_of(one) | {"backends": one.backends} | {f"protocol {k}": v for k, v in one.protocol.items()}
        for _, one in runs
    ]
    for fact, values in unlike(facts).items():
        where: dict[str, set[int]] = defaultdict(set)
        for (number, _), value in zip(runs, values, strict=True):
            where[value].add(number)
        yield f"unlike in {fact}: " + "; ".join(f"{v} in {_names(ns, of)}" for v, ns in where.items())


def _names(numbers: Iterable[int], of: int) -> str:
    return ", ".join(str(Shard(number, of, [])) if of else "some" for number in sorted(numbers))
