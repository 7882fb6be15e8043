"""One side of a comparison, as measured cells: run files, files of pytest-benchmark, and folders of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from attnbench.cases.ids import parse_case
from attnbench.results.disk import is_written
from attnbench.results.format import RepetitionTimes, StoredRun, expand, read_runs
from attnbench.results.pytest_benchmark import read_pytest_benchmark
from attnbench.stats.protocol import kept_over
from attnbench.types.compared import VARIABLE, Cell, Measured
from attnbench.types.errors import BadCase, BadFile, go_on_words
from attnbench.types.gc_paused import gc_paused
from attnbench.types.record import FORMAT_VERSION, CandidatePlan, CaseLine, Manifest, Record


def read_side(paths: Sequence[Path]) -> list[Measured]:
    """Read every run in files and folders; of copies of one run, keep the one with the most cells.

    Raises:
        BadFile: a file is missing, damaged, of a newer format or of another program; a folder has no runs.
    """
    found: dict[str, Measured] = {}
    for path in expand(paths, also_json=True):
        for run in _read(path):
            name = run.run_id or str(path)
            if name in found:
                other, kept = sorted((run, found[name]), key=lambda one: len(one.cells))
                note = f"{other.path}: the run {name} is also in {kept.path}, and counts once"
                run = replace(kept, problems=(*kept.problems, note))
            found[name] = run
    return list(found.values())


def is_json_file(path: Path) -> bool:
    """Return True for a file that may be pytest-benchmark's: named .json, and not one of our runs."""
    return path.suffix == ".json" and path.is_file() and b'"kind"' not in _first_bytes(path)


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(1000)
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure


@gc_paused()
def _read(path: Path) -> list[Measured]:
    """Read the runs of one file. Its first line tells its format."""
    if path.suffix == ".jsonl" or (path.is_file() and b'"kind"' in _first_bytes(path)):
        return read_ours(path)
    return [read_pytest_benchmark(path)]


def facts_of(manifest: Manifest) -> dict[str, Any]:
    """Flatten the environment of a run: libraries by their names, flags of torch as ``torch.NAME``.

    ``plugin NAME`` is a plugin with its version, ``plugin DISTRIBUTION: NAME`` a fact that a plugin states,
    ``library NAME`` a library that plugins need, ``variable NAME`` one of the environment.
    Unknown facts are left out.
    """
    environment = dict(manifest.environment)
    flat: dict[str, Any] = {"attnbench": manifest.attnbench}
    flat |= {f"plugin {one.name}": f"{one.distribution} {one.version}" for one in manifest.plugins}
    tables = (
        ("libraries", ""),
        ("torch_flags", "torch."),
        ("plugin_libraries", "library "),
        ("variables", VARIABLE),
    )
    for inside, prefix in tables:
        facts = environment.pop(inside, None)
        if isinstance(facts, dict):
            flat |= {f"{prefix}{name}": value for name, value in facts.items()}
    for distribution, stated in environment.pop("plugin_facts", {}).items():
        flat |= {f"plugin {distribution}: {name}": value for name, value in stated.items()}
    environment.pop("git_commit", None)
    return {name: value for name, value in (flat | environment).items() if value is not None}


def flaws_of(run: StoredRun, *, alone: bool = True) -> Iterator[str]:
    """Yield what a reader of a run must know: it has no end, or nothing shows changed samples.

    alone: the file has no other run.
    """
    path, manifest = run.path, run.manifest
    if run.cut_off:
        measured = sum(record.status != "interrupted" for record in run.records)
        missing = len(set(manifest.cases)) * len(set(manifest.backends)) - measured
        which, go_on = f"the run {manifest.run_id}", "to resume it, name the file that holds it alone"
        if alone:
            which, go_on = "the run", go_on_words(path, live=bool(manifest.sides), command="attnbench run")
        if is_written(path):
            yield f"{path}: {which} still goes on, {missing} of its records are missing"
        else:
            yield f"{path}: {which} was cut off, {missing} of its records are missing; {go_on}"
    yield from lacks_digests(run)
    if manifest.continues:
        yield (
            f"{path}: the run {manifest.run_id} goes on with {manifest.continues} under other conditions: "
            f"{', '.join(manifest.unlike)}"
        )
    if run.torn:
        yield f"{path}: its last line was cut off and is left out"


def lacks_digests(run: StoredRun) -> Iterator[str]:
    """Yield a sentence if a run has no digests."""
    if run.digest is None:
        yield (
            f"{run.path}: the run {run.manifest.run_id} has no digests (an early attnbench or another "
            "program wrote it): its numbers follow from its samples, but changed samples can't be seen"
        )


def not_timed(run: StoredRun) -> Iterator[str]:
    """Yield a sentence if a run has no times to compare."""
    if run.manifest.protocol.get("timed") is False:
        yield f"{run.path}: only checked, not timed"


def readable(run: StoredRun) -> StoredRun:
    """Return the run if the ids of all its cases can be read.

    Raises:
        BadFile: an id cannot be read.
    """
    for text in run.manifest.cases:
        try:
            parse_case(text)
        except BadCase as failure:
            others = [
                f"{one.name} ({one.distribution})"
                for one in run.manifest.plugins
                if one.distribution != "attnbench"
            ]
            hint = f" The run had these plugins: {', '.join(others)}." if others else ""
            raise BadFile(f"{str(run.path)!r}: {failure}{hint}") from failure
    return run


def read_ours(path: Path) -> list[Measured]:
    """Read the runs of a run file.

    Raises:
        BadFile: as :func:`attnbench.results.format.read_runs`.
    """
    runs = read_runs(path, samples=False)
    return [_measured(run, alone=len(runs) == 1) for run in runs]


def _measured(run: StoredRun, *, alone: bool) -> Measured:
    manifest = run.manifest
    lines = {line.case: line for line in run.cases}
    repetitions: dict[str, list[RepetitionTimes]] = defaultdict(list)
    for one in run.times:
        repetitions[one.case].append(one)
    # One value for all cells of a case.
    references = {case: _references(found) for case, found in repetitions.items()}
    # The cases of the manifest, in its order: equal ids are then one string.
    records: dict[str, list[Record]] = {case: [] for case in manifest.cases}
    for record in run.records:
        records[record.case].append(record)
    cells: list[Cell] = []
    for case, found in records.items():
        line = lines.get(case)
        meaning = ""
        if line is not None:
            meaning = f"{line.pairs} pairs, {line.flops:g} operations, {line.bytes_moved:g} bytes"
            if manifest.inputs > 1 and _has_drawn_mask(case):
                meaning += f", masks of version {manifest.inputs}"
        for record in found:
            plan = None if line is None else line.candidates.get(record.backend)
            times, parents = _processes(record.backend, plan, repetitions[case], manifest.protocol)
            cells.append(
                Cell(
                    case=case,
                    rule=record.rule,
                    backend=record.backend,
                    status=record.status,
                    reason=record.reason,
                    processes_ns=times,
                    reference_ns=references.get(case, {}),
                    fingerprint=meaning,
                    parents=parents,
                    ratio=record.ratio,
                    baseline="" if record.ratio is None else record.baseline or "",
                    in_a_row=() if plan is None else (plan.calls, plan.warm_calls),
                    memory_bytes=_memory_bytes(record, line),
                )
            )
    return Measured(
        path=run.path,
        origin="attnbench",
        version=str(FORMAT_VERSION),  # an older one is read in the words of this one
        started=manifest.started,
        commit=str(manifest.environment.get("git_commit") or ""),
        environment=facts_of(manifest),
        protocol=manifest.protocol,
        cells=tuple(cells),
        problems=(*flaws_of(run, alone=alone), *not_timed(run)),
        run_id=manifest.run_id,
    )


def _has_drawn_mask(case: str) -> bool:
    """Return whether the version of inputs matters to a case. Other inputs have been the same in all."""
    try:
        return parse_case(case).mask.is_drawn
    except BadCase:
        # Of an operation that is not loaded here.
        return False


def _references(repetitions: Sequence[RepetitionTimes]) -> dict[str, tuple[float, ...]]:
    """The times of each reference call, one for each repetition."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in repetitions:
        for name, ns in one.reference_ns.items():
            found[name].append(ns)
    return {name: tuple(times) for name, times in found.items()}


def _memory_bytes(record: Record, line: CaseLine | None) -> float | None:
    if line is None or record.peak_extra_bytes is None:
        return None
    return line.bytes_moved + record.peak_extra_bytes


def _processes(
    backend: str, plan: CandidatePlan | None, repetitions: Sequence[RepetitionTimes], protocol: dict[str, Any]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The median of each process of a backend, and the number of the server that it was forked from.

    A process that was kept over several repetitions counts once, with the median over those.
    """
    taken = [(one.index, one.median_ns[backend]) for one in repetitions if backend in one.median_ns]
    launches, planned = protocol.get("launches"), protocol.get("repetitions")
    if plan is None or not isinstance(launches, int) or not isinstance(planned, int) or launches < 1:
        return tuple(ns for _, ns in taken), ()
    if plan.anew:
        return tuple(ns for _, ns in taken), tuple(number % launches for number, _ in taken)
    if plan.fresh:
        return tuple(ns for _, ns in taken), (0,) * len(taken)
    each = kept_over(planned)
    kept: dict[int, list[float]] = {}
    for number, ns in taken:
        kept.setdefault(number // each, []).append(ns)
    return tuple(map(median, kept.values())), tuple(process % launches for process in kept)
