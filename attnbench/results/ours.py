"""Run files as measured cells, and what a reader of them must know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attnbench.cases.ids import parse_case
from attnbench.results.format import StoredRun, read_runs
from attnbench.stats.protocol import kept_over
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadCase, BadFile, go_on_words
from attnbench.types.record import Block, CandidatePlan, CaseLine, MachineScale, Manifest, Record, SetLine
from attnbench.types.words import count_of

_NOT_FACTS = frozenset({"git_commit", "libraries", "plugin_facts", "torch_flags"})


def facts_of(manifest: Manifest) -> dict[str, Any]:
    """The environment of a run, flat: libraries under their names, torch's flags as ``torch.NAME``.

    Plugins stand under ``plugin NAME`` with their versions, and what they state under ``plugin DISTRIBUTION:
    NAME``; what isn't known is left out.
    """
    environment = manifest.environment
    flat: dict[str, Any] = {"attnbench": manifest.attnbench}
    for plugin in manifest.plugins:
        flat[f"plugin {plugin.name}"] = f"{plugin.distribution} {plugin.version}"
    for inside, prefix in (("libraries", ""), ("torch_flags", "torch.")):
        facts = environment.get(inside)
        if isinstance(facts, dict):
            flat |= {f"{prefix}{name}": value for name, value in facts.items()}
    for distribution, stated in environment.get("plugin_facts", {}).items():
        flat |= {f"plugin {distribution}: {name}": value for name, value in stated.items()}
    flat |= {name: value for name, value in environment.items() if name not in _NOT_FACTS}
    return {name: value for name, value in flat.items() if value is not None}


def flaws_of(run: StoredRun, *, alone: bool = True) -> Iterator[str]:
    """What a reader of a run must know: it was cut off or torn, or lacks records or sets.

    alone: the file has no other run.
    """
    path, manifest = run.path, run.manifest
    missing = len(set(manifest.cases)) * len(set(manifest.backends)) - len(run.records)
    timed = manifest.protocol.get("timed") is not False
    if run.finished is None:
        which, go_on = f"the run {manifest.run_id}", "its own file can be gone on with"
        if alone:
            which, go_on = "the run", go_on_words(path, live=bool(manifest.sides), command="attnbench run")
        yield f"{path}: {which} was cut off, {missing} of its records are missing; {go_on}"
    there: dict[tuple[str, str], int] = defaultdict(int)
    indexes: dict[str, list[int]] = defaultdict(list)
    for line in run.sets:
        indexes[line.case].append(line.index)
        for backend, blocks in line.blocks.items():
            there[line.case, backend] += bool(blocks)
    gaps = [case for case, found in indexes.items() if max(found) >= len(found)]
    if gaps:
        yield f"{path}: sets are missing in the middle, on {_first_of(gaps)}"
    lost = {r.case: None for r in run.records if r.status == "ok" and r.sets > there[r.case, r.backend]}
    if lost and timed:
        yield f"{path}: sets are missing that were measured, on {_first_of(list(lost))}"
    if run.finished is not None and missing > 0:
        yield f"{path}: {missing} of its records are missing, though it says that it went to its end"
    if run.torn:
        yield f"{path}: its last line was cut off and is left out"
    if not timed:
        yield f"{path}: was checked alone, not timed"


def _first_of(cases: Sequence[str]) -> str:
    """The first of one or more cases, and how many more there are."""
    return cases[0] + (f" and {count_of(len(cases) - 1, 'more case')}" if len(cases) > 1 else "")


def readable(run: StoredRun) -> StoredRun:
    """The run, all ids of whose cases can be read; of several files it is told which has one that can't.

    Raises:
        BadFile: an id can't be read.
    """
    for text in run.manifest.cases:
        try:
            parse_case(text)
        except BadCase as failure:
            raise BadFile(f"{str(run.path)!r}: {failure}") from failure
    return run


def read_ours(path: Path) -> list[Measured]:
    """Read the runs of a file, mostly one.

    Raises:
        BadFile: as :func:`attnbench.results.format.read_runs`.
    """
    runs = read_runs(path)
    return [_measured(run, alone=len(runs) == 1) for run in runs]


def _measured(run: StoredRun, *, alone: bool) -> Measured:
    manifest = run.manifest
    lines = {line.case: line for line in run.cases}
    sets: dict[str, list[SetLine]] = defaultdict(list)
    records: dict[str, list[Record]] = {case: [] for case in manifest.cases}
    for line in run.sets:
        sets[line.case].append(line)
    for record in run.records:
        records[record.case].append(record)
    # One value for all cells of a case.
    references = {case: _references([line.scale for line in found]) for case, found in sets.items()}
    return Measured(
        path=run.path,
        origin="attnbench",
        version=str(manifest.format),
        started=manifest.started,
        commit=str(manifest.environment.get("git_commit") or ""),
        environment=facts_of(manifest),
        protocol=manifest.protocol,
        cells=tuple(
            _cell(record, lines.get(case), sets[case], references.get(case, {}), manifest.protocol)
            for case, found in records.items()
            for record in found
        ),
        problems=tuple(flaws_of(run, alone=alone)),
        run_id=manifest.run_id,
    )


def _references(scales: Sequence[MachineScale | None]) -> dict[str, tuple[float, ...]]:
    """The times of reference calls, one for each set: the best of few products, else the median."""
    found: dict[str, list[float]] = defaultdict(list)
    for scale in scales:
        if scale is not None:
            for side, times in scale.gemm_ns.items():
                found[f"gemm_{side}"] += [float(min(times))] if times else []
            for name, taken in (("copy", scale.copy_ns), ("empty", scale.empty_ns)):
                found[name] += [float(median(taken))] if taken else []
    return {name: tuple(times) for name, times in found.items() if times}


def _cell(
    record: Record,
    line: CaseLine | None,
    sets: Sequence[SetLine],
    references: dict[str, tuple[float, ...]],
    protocol: dict[str, Any],
) -> Cell:
    contender = None if line is None else line.contenders.get(record.backend)
    timed = [one for one in sets if one.blocks.get(record.backend)]
    times, parents = _processes(
        [one.index for one in timed],
        [_median_ns(one.blocks[record.backend]) for one in timed],
        contender,
        protocol,
    )
    meaning = ""
    if line is not None:
        meaning = f"{line.pairs} pairs, {line.flops:g} operations, {line.bytes_moved:g} bytes"
    return Cell(
        case=record.case,
        rule=record.rule,
        backend=record.backend,
        status=record.status,
        reason=record.reason,
        processes_ns=times,
        reference_ns=references,
        fingerprint=meaning,
        parents=parents,
        ratio=record.ratio,
    )


def _median_ns(blocks: Sequence[Block]) -> float:
    """The median time per call over the samples of a set."""
    if len({block.calls for block in blocks}) == 1:
        return median([wall for block in blocks for wall in block.wall_ns]) / blocks[0].calls
    return median([wall / block.calls for block in blocks for wall in block.wall_ns])


def _processes(
    numbers: list[int], medians_ns: list[float], contender: CandidatePlan | None, protocol: dict[str, Any]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The median of each process and the number of what it was forked from.

    A process that was kept over several sets is one, with the median over those.
    """
    launches, sets = protocol.get("launches"), protocol.get("sets")
    if contender is None or not isinstance(launches, int) or not isinstance(sets, int) or launches < 1:
        return tuple(medians_ns), ()
    if contender.anew:
        return tuple(medians_ns), tuple(number % launches for number in numbers)
    if contender.fresh:
        return tuple(medians_ns), (0,) * len(numbers)
    each = kept_over(sets)
    kept: dict[int, list[float]] = {}
    for number, ns in zip(numbers, medians_ns, strict=True):
        kept.setdefault(number // each, []).append(ns)
    return tuple(median(ns) for ns in kept.values()), tuple(process % launches for process in kept)
