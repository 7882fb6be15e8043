"""Run files as measured cells: read line by line, with what is missing in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from attnbench.cases.ids import parse_case
from attnbench.results.format import NOT_DECODED, StoredRun, is_possible, manifest_of
from attnbench.stats.protocol import kept_over
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadCase, BadFile, go_on_words
from attnbench.types.record import CaseLine, Contender, EndLine, Manifest, Record
from attnbench.types.words import count_of


class SlimBlock(Struct, gc=False):
    """Of the samples of one stretch: how many calls each had, and how long they took."""

    calls: int
    wall_ns: list[int]


class SlimScale(Struct, gc=False):
    """What the machine could do beside a set."""

    gemm_ns: dict[int, list[int]]
    copy_ns: list[int]
    empty_ns: list[float]


class SlimSet(Struct, tag="set", tag_field="kind", gc=False):
    """The samples of one set."""

    case: str
    index: int
    blocks: dict[str, list[SlimBlock]]
    scale: SlimScale | None = None


class SlimManifest(Struct, tag="manifest", tag_field="kind", gc=False):
    """That another run begins."""

    run_id: str


SlimLine = CaseLine | SlimSet | Record | EndLine | SlimManifest


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


def flaws_of(run: StoredRun) -> Iterator[str]:
    """What a reader of a run must know: it was cut off or torn, or lacks records or sets."""
    there = Counter((line.case, name) for line in run.sets for name, blocks in line.blocks.items() if blocks)
    lost = [r.case for r in run.records if r.status == "ok" and r.sets > there[r.case, r.backend]]
    yield from _problems(
        run.path, run.manifest, len(run.records), lost, (), finished=run.finished is not None, torn=run.torn
    )


def _problems(
    path: Path,
    manifest: Manifest,
    records: int,
    lost: Sequence[str],
    gaps: Sequence[str],
    *,
    finished: bool,
    torn: bool,
    alone: bool = True,
) -> Iterator[str]:
    """lost, gaps: the cases that lack sets which their records count, or sets in the middle. alone: the file
    has no other run."""
    missing = len(set(manifest.cases)) * len(set(manifest.backends)) - records
    timed = manifest.protocol.get("timed") is not False
    if not finished:
        which, go_on = f"the run {manifest.run_id}", "its own file can be gone on with"
        if alone:
            which, go_on = "the run", go_on_words(path, live=bool(manifest.sides), command="attnbench run")
        yield f"{path}: {which} was cut off, {missing} of its records are missing; {go_on}"
    if gaps:
        yield f"{path}: sets are missing in the middle, on {first_of(gaps)}"
    if lost and timed:
        yield f"{path}: sets are missing that were measured, on {first_of(list(dict.fromkeys(lost)))}"
    if finished and missing > 0:
        yield f"{path}: {missing} of its records are missing, though it says that it went to its end"
    if torn:
        yield f"{path}: its last line was cut off and is left out"
    if not timed:
        yield f"{path}: was checked alone, not timed"


def first_of(cases: Sequence[str]) -> str:
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


_AT_ONCE = 2**20
"""Bytes to read at a time; a line of a set has some ten thousand."""
_DECODE = msgspec.json.Decoder(SlimLine).decode


@dataclass
class _CaseRead:
    """What has been read of a case: by backend the number and the median of each set, and its record."""

    line: CaseLine | None = None
    sets: set[int] = field(default_factory=set)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    medians_ns: dict[str, list[float]] = field(default_factory=dict)
    scale_ns: dict[str, list[float]] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)

    @cached_property
    def references(self) -> dict[str, tuple[float, ...]]:
        """The times of reference calls, one value for all cells of the case; once all is read."""
        return {name: tuple(ns) for name, ns in self.scale_ns.items()}


def read_ours(path: Path) -> list[Measured]:
    """Read the runs of a file, mostly one; a torn last line is left out and told among the problems.

    Raises:
        BadFile: missing, unreadable, not ours, of a newer format, damaged elsewhere than at its end, or with
            the same run twice.
    """
    runs: list[Measured] = []
    try:
        with path.open("rb", buffering=_AT_ONCE) as file:
            lines = enumerate(file, start=1)
            number, line = next(lines, (1, b""))
            while line or not runs:
                manifest = manifest_of(path, line)
                if any(run.run_id == manifest.run_id for run in runs):
                    twice = f"a second manifest of the run {manifest.run_id!r}, which would count twice"
                    raise BadFile(f"{str(path)!r}, line {number}: {twice}")
                run, (number, line) = _read(path, manifest, lines, first=not runs)
                runs.append(run)
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure
    return runs


def _read(
    path: Path, manifest: Manifest, lines: Iterator[tuple[int, bytes]], *, first: bool
) -> tuple[Measured, tuple[int, bytes]]:
    """A run, and the line after it, which is another manifest or b""."""
    cases = {name: _CaseRead() for name in manifest.cases}
    backends = frozenset(manifest.backends)
    finished = torn = False
    following = (0, b"")
    for number, line in lines:
        if not line.endswith(b"\n"):
            torn = True
            break
        try:
            read = _DECODE(line)
        except NOT_DECODED as failure:
            raise BadFile(f"{str(path)!r}, line {number}: damaged ({failure})") from failure
        if isinstance(read, SlimManifest):
            following = (number, line)
            break
        finished = isinstance(read, EndLine)
        wrong = "" if finished else _take(read, cases, backends)
        if wrong:
            raise BadFile(f"{str(path)!r}, line {number}: {wrong}")
    alone = first and not following[1]
    run = Measured(
        path=path,
        origin="attnbench",
        version=str(manifest.format),
        started=manifest.started,
        commit=str(manifest.environment.get("git_commit") or ""),
        environment=facts_of(manifest),
        protocol=manifest.protocol,
        cells=tuple(
            _cell(name, case, record, manifest)
            for name, case in cases.items()
            for record in case.records.values()
        ),
        problems=tuple(
            _problems(
                path,
                manifest,
                sum(len(case.records) for case in cases.values()),
                _lost(cases),
                [name for name, case in cases.items() if case.sets and max(case.sets) >= len(case.sets)],
                finished=finished,
                torn=torn,
                alone=alone,
            )
        ),
        run_id=manifest.run_id,
    )
    return run, following


def _take(line: Any, cases: dict[str, _CaseRead], backends: Collection[str]) -> str:
    """Keep what a line says; what is wrong with it where it stands, in words."""
    case = cases.get(line.case)
    if case is None:
        return f"a case that the manifest doesn't name, {line.case!r}"
    if isinstance(line, SlimSet):
        return _take_set(line, case)
    if isinstance(line, CaseLine):
        case.line = line
    elif line.backend not in backends:
        return f"a backend that the manifest doesn't name, {line.backend!r}"
    elif not is_possible(line):
        return "a record with an impossible time, ratio or p-value"
    elif line.backend in case.records:
        return f"{line.backend} of {line.case!r} stands here a second time"
    else:
        case.records[line.backend] = line
    return ""


def _take_set(line: SlimSet, case: _CaseRead) -> str:
    if case.line is None:
        return f"a set of {line.case!r} before the line of that case, which is missing"
    if line.index in case.sets:
        return f"the set {line.index} of {line.case!r} stands here a second time"
    if line.index < 0:
        return f"a set with the number {line.index}"
    case.sets.add(line.index)
    for backend, blocks in line.blocks.items():
        if blocks:
            ns = _median_ns(blocks)
            if ns <= 0:
                return "a block without samples, or with impossible ones"
            case.numbers.setdefault(backend, []).append(line.index)
            case.medians_ns.setdefault(backend, []).append(ns)
    if line.scale is not None:
        for name, ns in _reference(line.scale).items():
            case.scale_ns.setdefault(name, []).append(ns)
    return ""


def _median_ns(blocks: list[SlimBlock]) -> float:
    """The median time per call of a set's samples; 0 where a block has none, or what can't be one.

    Of blocks with as many calls each it is that of the samples, over the calls.
    """
    calls = blocks[0].calls
    walls: list[int] = []
    for block in blocks:
        if block.calls < 1 or not block.wall_ns:
            return 0.0
        if block.calls != calls:
            times = [wall / b.calls for b in blocks if b.calls > 0 for wall in b.wall_ns]
            return median(times) if all(b.calls > 0 and b.wall_ns for b in blocks) and min(times) > 0 else 0.0
        walls += block.wall_ns
    walls.sort()
    if walls[0] <= 0:
        return 0.0
    middle = len(walls) // 2
    twice = 2 * walls[middle] if len(walls) % 2 else walls[middle - 1] + walls[middle]
    return twice / 2 / calls


def _reference(scale: SlimScale) -> dict[str, float]:
    """One time for each reference call of a set: the best of few products, else the median."""
    found = {f"gemm_{side}": float(min(times)) for side, times in scale.gemm_ns.items() if times}
    if scale.copy_ns:
        found["copy"] = float(median(scale.copy_ns))
    if scale.empty_ns:
        found["empty"] = float(median(scale.empty_ns))
    return found


def _cell(name: str, case: _CaseRead, record: Record, manifest: Manifest) -> Cell:
    line = case.line
    contender = None if line is None else line.contenders.get(record.backend)
    times, parents = _processes(
        case.numbers.get(record.backend, []),
        case.medians_ns.get(record.backend, []),
        contender,
        manifest.protocol,
    )
    return Cell(
        case=name,
        rule=record.rule,
        backend=record.backend,
        status=record.status,
        reason=record.reason,
        processes_ns=times,
        reference_ns=case.references,
        fingerprint=""
        if line is None
        else f"{line.pairs} pairs, {line.flops:g} operations, {line.bytes_moved:g} bytes",
        parents=parents,
        ratio=record.ratio,
    )


def _processes(
    numbers: list[int], medians_ns: list[float], contender: Contender | None, protocol: dict[str, Any]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The median of each process and the number of what it was forked from: see ``runner.sets.Stable.child``.

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


def _lost(cases: dict[str, _CaseRead]) -> list[str]:
    """The cases with records that count more sets than there are."""
    return [
        name
        for name, case in cases.items()
        for record in case.records.values()
        if record.status == "ok" and record.sets > len(case.numbers.get(record.backend, ()))
    ]
