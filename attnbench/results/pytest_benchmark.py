"""Read and write runs in the format of pytest-benchmark.

attnbench writes a benchmark for each cell that is ``ok``: its group is the case, its name the backend. Its
rounds are *processes*, with the median time of a call in each. They count as independent; calls of one
process do not. The key ``attnbench`` holds what that format has no place for, so that nothing is lost.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from attnbench.results.format1 import protocol_in_format_2
from attnbench.results.targets import FileKind, check_target, write_files
from attnbench.types.compared import Cell, Measured, Time
from attnbench.types.errors import BadFile
from attnbench.types.files import parse_json
from attnbench.types.status import MEANING, STATUSES
from attnbench.types.words import printable_json

FORMAT = "5.3.1"
"""The version of pytest-benchmark that written files name: the newest that is known to have this format."""
_KNOWN_MAJORS = ("4", "5")
_UNKNOWN_COMMITS = ("unversioned", "unknown")
_SYSTEM = ("system", "release", "machine")
_OTHERWISE = frozenset({*_SYSTEM, "node", "cpu", "processor", "python_version", "python_build"})
"""Facts that are left out or have another name here. ``node`` is the host, which differs between runners."""
_ROUNDING = 1e-9


class _Stats(msgspec.Struct, frozen=True):
    """The numbers of a benchmark that are read, in seconds."""

    rounds: Annotated[int, msgspec.Meta(ge=1)]
    min: Time
    q1: Time
    median: Time
    q3: Time
    max: Time


class _Ours(msgspec.Struct, frozen=True):
    format: str = ""
    run_id: str = ""
    environment: dict[str, Any] = {}
    protocol: dict[str, Any] = {}
    problems: list[str] = []
    left_out: list[dict[str, Any]] = []


class _Benchmark(msgspec.Struct, frozen=True):
    fullname: str = ""
    name: str = ""
    extra_info: Any = None
    options: dict[str, Any] = {}
    stats: Any = None


class _File(msgspec.Struct, frozen=True):
    benchmarks: list[_Benchmark]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}
    datetime: str = ""
    version: str = ""
    attnbench: _Ours | None = None


def read_pytest_benchmark(path: Path) -> Measured:
    """Read a file of pytest-benchmark.

    A benchmark is a cell with one process: its median. If attnbench wrote the file, ``extra_info`` names the
    case, backend and status, and has all processes; in other files the case is the name of the benchmark.
    The pytest plugin adds the tests that failed.
    Names tell apart two benchmarks of one case and backend. A benchmark with impossible numbers becomes a
    cell with the status ``error``.

    Raises:
        BadFile: the file is missing, damaged or of another program, or has a benchmark twice.
    """
    try:
        file = msgspec.convert(_loaded(path), _File)
    except (msgspec.ValidationError, OverflowError) as failure:
        raise BadFile(f"{str(path)!r}: damaged: {failure}") from failure
    names = [one.fullname or one.name for one in file.benchmarks]
    if "" in names:
        raise BadFile(f"{str(path)!r}: damaged: benchmark {names.index('') + 1} of the list has no name")
    ours = file.attnbench or _Ours()
    if ours.format == "1":
        ours = msgspec.structs.replace(ours, format="2", protocol=protocol_in_format_2(ours.protocol))
    # A test that failed has a name, as benchmarks have; what a run of attnbench left out has none.
    failed = [entry for entry in ours.left_out if entry.get("name")]
    cells = [_cell(*both) for both in zip(names, file.benchmarks, strict=True)]
    cells += [_left_out(path, entry) for entry in failed]
    cells = _with_names([*names, *(str(entry["name"]) for entry in failed)], cells)
    cells += [_left_out(path, entry) for entry in ours.left_out if entry not in failed]
    for (case, backend), times in Counter(cell.key for cell in cells).items():
        if times > 1:
            name = f"{case!r} of {backend!r}" if backend else repr(case)
            raise BadFile(f"{str(path)!r}: damaged: the benchmark {name} is there {times} times")
    return Measured(
        path=path,
        origin="attnbench" if ours.format else "pytest-benchmark",
        version=ours.format or file.version,
        started=_started(file.datetime),
        commit=_commit(file.commit_info),
        environment=ours.environment or _environment(file.machine_info),
        protocol=ours.protocol or _protocol(file.benchmarks),
        cells=tuple(cells),
        problems=(*_problems(path, file, cells), *ours.problems),
        run_id=ours.run_id,
    )


def _loaded(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise BadFile(f"{str(path)!r} is not a regular file")
        data: Any = printable_json(parse_json(path.read_bytes()))
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure
    except (ValueError, RecursionError) as failure:
        raise BadFile(
            f"{str(path)!r} is neither a run of attnbench nor JSON of pytest-benchmark ({failure})"
        ) from failure
    if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list):
        raise BadFile(f"{str(path)!r} is neither a run of attnbench nor JSON of pytest-benchmark")
    return data


def _cell(name: str, benchmark: _Benchmark) -> Cell:
    extra = benchmark.extra_info
    ours = isinstance(extra, dict) and isinstance(extra.get("backend"), str)
    if ours and isinstance(extra.get("case"), str) and extra["case"]:
        cell = _stored(extra)
    else:
        cell = Cell(case=name, rule="", backend="", status="ok")
    if not MEANING[cell.status].timed:
        return replace(cell, processes_ns=(), calls_ns=())
    try:
        stats = msgspec.convert(benchmark.stats, _Stats)
    except (msgspec.ValidationError, OverflowError) as failure:
        return _error(cell, f"its stats are damaged: {failure}")
    quartiles = tuple(s * 1e9 for s in (stats.min, stats.q1, stats.median, stats.q3, stats.max))
    if any(low > high * (1 + _ROUNDING) for low, high in pairwise(quartiles)):
        return _error(cell, "its stats are damaged: its quartiles are not in order")
    if cell.processes_ns:
        return cell
    return replace(cell, processes_ns=(quartiles[2],), calls_ns=quartiles)


def _stored(entry: dict[str, Any]) -> Cell:
    """The cell that attnbench wrote in an entry, which has a case and a backend."""
    bare = Cell(case=entry["case"], rule="", backend=entry["backend"], status="ok")
    status = entry.get("status") or "ok"
    if status not in STATUSES:
        return _error(bare, f"its status is {status!r}, which attnbench does not know")
    try:
        return msgspec.convert({"rule": "", **entry, "status": status}, Cell)
    except (msgspec.ValidationError, OverflowError) as failure:
        return _error(bare, f"its extra_info is damaged: {failure}")


def _error(cell: Cell, reason: str) -> Cell:
    return replace(cell, status="error", reason=reason, processes_ns=(), calls_ns=())


def _left_out(path: Path, entry: dict[str, Any]) -> Cell:
    """A cell that attnbench could not write as a benchmark."""
    if not (isinstance(entry.get("case"), str) and isinstance(entry.get("backend"), str)):
        raise BadFile(f"{str(path)!r}: damaged: an entry of attnbench.left_out has no case or backend")
    return _stored(entry)


def _with_names(names: Sequence[str], cells: Sequence[Cell]) -> list[Cell]:
    """Add the names of benchmarks to cells of one case and backend."""
    often = Counter(cell.key for cell in cells)
    return [
        replace(cell, case=f"{cell.case} ({name})") if often[cell.key] > 1 and cell.case != name else cell
        for name, cell in zip(names, cells, strict=True)
    ]


def _problems(path: Path, file: _File, cells: Sequence[Cell]) -> Iterator[str]:
    if not file.version:
        yield f"{path}: does not name the version of pytest-benchmark that wrote it"
    elif file.version.partition(".")[0] not in _KNOWN_MAJORS:
        known = " and ".join(_KNOWN_MAJORS)
        yield f"{path}: pytest-benchmark {file.version} wrote it; attnbench knows versions {known}"
    if not cells:
        yield f"{path}: has no benchmarks"


def _environment(machine: dict[str, Any]) -> dict[str, Any]:
    """The facts of ``machine_info``, flat, under attnbench's names where it has one.

    Facts that a project added by pytest-benchmark's hook keep their names, if they are single values.
    """
    cpu = machine.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    named = {
        "cpu": cpu.get("brand_raw") or cpu.get("brand") or machine.get("processor"),
        "cpu_count": cpu.get("count"),
        "python": machine.get("python_version"),
        "system": " ".join(str(machine[name]) for name in _SYSTEM if machine.get(name)),
    }
    others = {name: value for name, value in machine.items() if name not in _OTHERWISE}
    facts = (named | others).items()
    return {name: value for name, value in facts if isinstance(value, str | int | float) and value != ""}


def _protocol(benchmarks: Sequence[_Benchmark]) -> dict[str, Any]:
    """The options of all benchmarks; ``per benchmark`` where they differ."""
    options = [one.options for one in benchmarks if one.options]
    names = dict.fromkeys(name for found in options for name in found)
    first = options[0] if options else {}
    return {
        name: first.get(name) if all(o.get(name) == first.get(name) for o in options) else "per benchmark"
        for name in names
    }


def _commit(info: dict[str, Any]) -> str:
    """The commit, ``-dirty`` where files were changed since; "" where unknown."""
    commit = info.get("id")
    if not isinstance(commit, str) or not commit or commit in _UNKNOWN_COMMITS:
        return ""
    return f"{commit}-dirty" if info.get("dirty") is True else commit


def _started(moment: str) -> str:
    """A date as manifests have it, in UTC; version 4 wrote UTC without naming it."""
    try:
        when = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.isoformat(timespec="seconds")


def to_pytest_benchmark(run: Measured) -> dict[str, Any]:
    """Convert a run to the JSON of pytest-benchmark; :func:`read_pytest_benchmark` reads all of it back.

    Cells without a time stand in ``attnbench.left_out``, with their status and reason.
    """
    words = str(run.environment.get("system") or "").split()
    system, release, machine = (*words, "", "", "")[:3]
    return {
        # First, where it marks the file as written by attnbench.
        "attnbench": {
            "format": run.version,
            "run_id": run.run_id,
            "environment": run.environment,
            "protocol": run.protocol,
            "problems": list(run.problems),
            "left_out": [_entry(cell) for cell in run.cells if not is_benchmark(cell)],
        },
        "machine_info": {
            "node": "",
            "processor": "",
            "machine": machine,
            "python_version": str(run.environment.get("python") or ""),
            "release": release,
            "system": system,
            "cpu": {"brand_raw": str(run.environment.get("cpu") or "")},
        },
        "commit_info": {
            "id": run.commit.removesuffix("-dirty") or "unversioned",
            "time": None,
            "author_time": None,
            "dirty": run.commit.endswith("-dirty"),
            "project": "attnbench",
            "branch": "(unknown)",
        },
        "benchmarks": [_benchmark(cell) for cell in run.cells if is_benchmark(cell)],
        "datetime": run.started,
        "version": FORMAT,
    }


def is_benchmark(cell: Cell) -> bool:
    """Return True for a cell that can be a benchmark: it is ``ok`` and was timed."""
    return cell.status == "ok" and bool(cell.processes_ns)


def _entry(cell: Cell) -> dict[str, Any]:
    """The fields of a cell that are not empty."""
    return {name: value for name, value in msgspec.to_builtins(cell).items() if value}


def _benchmark(cell: Cell) -> dict[str, Any]:
    return {
        "group": cell.case,
        "name": cell.backend or cell.case,
        "fullname": f"{cell.case}[{cell.backend}]" if cell.backend else cell.case,
        "params": {"case": cell.case, "rule": cell.rule, "backend": cell.backend},
        "param": cell.backend,
        "extra_info": _entry(cell),
        "options": {},
        "stats": stats_of([ns / 1e9 for ns in cell.processes_ns]),
    }


def stats_of(times: Sequence[float]) -> dict[str, Any]:
    """The stats of pytest-benchmark over one or more times, in seconds.

    Quartiles are those of ``statistics.quantiles`` with both ends counted. Outliers are beyond one standard
    deviation of the mean, or beyond 1.5 interquartile ranges of the quartiles (Tukey). ld15iqr, hd15iqr: the
    least and largest time within the latter.
    """
    mean = statistics.fmean(times)
    stddev = statistics.stdev(times) if len(times) > 1 else 0.0
    q1, _, q3 = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
    reach = 1.5 * (q3 - q1)
    within = [time for time in times if q1 - reach <= time <= q3 + reach] or list(times)
    by_deviation = sum(not mean - stddev <= time <= mean + stddev for time in times)
    by_quartiles = sum(not q1 - reach <= time <= q3 + reach for time in times)
    return {
        "min": min(times),
        "max": max(times),
        "mean": mean,
        "stddev": stddev,
        "rounds": len(times),
        "median": statistics.median(times),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": by_quartiles,
        "stddev_outliers": by_deviation,
        "outliers": f"{by_deviation};{by_quartiles}",
        "ld15iqr": min(within),
        "hd15iqr": max(within),
        "ops": 1 / mean,
        "total": sum(times),
        "data": list(times),
        "iterations": 1,
    }


BENCHMARKS = FileKind("a file of pytest-benchmark's format", b'{\n "attnbench": {')


def pytest_benchmark_text(run: Measured) -> str:
    """Return a run in the format of pytest-benchmark."""
    content = printable_json(to_pytest_benchmark(run))
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_pytest_benchmark(run: Measured, path: Path) -> None:
    """Write a run in the format of pytest-benchmark; the file is there as a whole or as it was.

    Raises:
        BadInput: as :func:`attnbench.results.targets.check_target`, or where writing fails.
    """
    check_target(path, BENCHMARKS)
    write_files({path: pytest_benchmark_text(run).encode()})
