"""Stored shards held against their selection: missing, measured twice, or unlike ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from attnbench.cases.select import shard_number
from attnbench.compare.environment import unlike
from attnbench.results.format import StoredRun
from attnbench.results.read import facts_of, flaws_of
from attnbench.types.record import Shard
from attnbench.types.words import count_of


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
        several = [run for run in several if not run.manifest.continues]
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
