"""Files of pytest-benchmark, its own and those that attnbench wrote, as measured cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadFile
from attnbench.types.status import MEANING, STATUSES

_SYSTEM = ("system", "release", "machine")
_OTHERWISE = frozenset({*_SYSTEM, "node", "cpu", "processor", "python_version", "python_build"})
"""Left out or under another name: ``node`` is the host, which differs from runner to runner."""

_UNKNOWN_COMMITS = ("unversioned", "unknown")


def environment_of(machine: dict[str, Any]) -> dict[str, Any]:
    """The facts in ``machine_info``, flat, under the names of a manifest where there is one.

    What a project added by pytest-benchmark's hook stands under its own names where it is one value.
    """
    told = machine.get("cpu")
    cpu: dict[str, Any] = told if isinstance(told, dict) else {}
    named = {
        "cpu": _first_text(cpu.get("brand_raw"), cpu.get("brand"), machine.get("processor")),
        "cpu_count": cpu.get("count") if isinstance(cpu.get("count"), int) else None,
        "python": _first_text(machine.get("python_version")),
        "system": " ".join(text for name in _SYSTEM if (text := _first_text(machine.get(name)))) or None,
    }
    others = {
        name: value
        for name, value in machine.items()
        if name not in _OTHERWISE and isinstance(value, str | int | float)
    }
    return {name: value for name, value in (named | others).items() if value is not None}


def protocol_of(benchmarks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The options that all benchmarks of a file have alike; ``per benchmark`` where they differ."""
    options = [found["options"] for found in benchmarks if isinstance(found.get("options"), dict)]
    names = dict.fromkeys(name for found in options for name in found)
    return {
        name: options[0].get(name)
        if all(found.get(name) == options[0].get(name) for found in options)
        else "per benchmark"
        for name in names
    }


def commit_of(info: dict[str, Any]) -> str:
    """The commit, ``-dirty`` where files were changed since; "" where unknown."""
    commit = info.get("id")
    if not isinstance(commit, str) or commit in _UNKNOWN_COMMITS:
        return ""
    return f"{commit}-dirty" if commit and info.get("dirty") is True else commit


def started_of(moment: Any) -> str:
    """A date as manifests have it, in UTC; version 4 wrote UTC without saying so."""
    if not isinstance(moment, str):
        return ""
    try:
        when = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return when.isoformat(timespec="seconds")


def _first_text(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


KNOWN_MAJORS = ("4", "5")
"""Versions of pytest-benchmark whose files have the fields that are read here."""

OURS = "attnbench"
"""The key, beside those of pytest-benchmark, under which attnbench writes what has no place in them."""

Time = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
"""A time that can be one, in seconds or nanoseconds."""
_ROUNDING = 1e-9


class _Stats(msgspec.Struct, frozen=True):
    """The numbers of a benchmark that are read, in seconds."""

    rounds: Annotated[int, msgspec.Meta(ge=1)]
    min: Time
    q1: Time
    median: Time
    q3: Time
    max: Time


class _Processes(msgspec.Struct, frozen=True):
    """The times that attnbench wrote beside a benchmark; see :class:`attnbench.types.compared.Cell`."""

    processes_ns: Annotated[tuple[Time, ...], msgspec.Meta(min_length=1)]
    calls_ns: tuple[Time, ...] = ()
    reference_ns: dict[str, tuple[Time, ...]] = {}
    parents: tuple[int, ...] = ()
    ratio: Time | None = None


def is_pytest_benchmark(data: Any) -> bool:
    """Whether decoded JSON looks like a file of pytest-benchmark."""
    return isinstance(data, dict) and isinstance(data.get("benchmarks"), list)


def read_pytest_benchmark(path: Path, data: dict[str, Any]) -> Measured:
    """What a file of pytest-benchmark says; ``data``: its JSON, decoded.

    A benchmark is a cell, and was one process: its median. Its case, rule, backend and status are those in
    its ``extra_info`` where attnbench wrote them there; else the case is its full name. Where two benchmarks
    are of the same case and backend, their names tell them apart. A benchmark whose numbers can't be is a
    cell with the status ``error``. What attnbench wrote has all processes, and the cells that have no time.

    Raises:
        BadFile: no list of benchmarks, a benchmark without a name, or one that stands there twice.
    """
    if not is_pytest_benchmark(data):
        raise BadFile(f"{str(path)!r} is no file of pytest-benchmark: it has no list of benchmarks")
    names = [_name(path, place, found) for place, found in enumerate(data["benchmarks"], start=1)]
    cells = [_cell(name, found) for name, found in zip(names, data["benchmarks"], strict=True)]
    ours = _dict(data.get(OURS))
    cells = [*_told_apart(names, cells), *_left_out(path, ours)]
    _refuse_twice(path, cells)
    machine = _dict(data.get("machine_info"))
    return Measured(
        path=path,
        origin="attnbench" if ours else "pytest-benchmark",
        version=_text(ours.get("format") if ours else data.get("version")),
        started=started_of(data.get("datetime")),
        commit=commit_of(_dict(data.get("commit_info"))),
        environment=_dict(ours.get("environment")) or environment_of(machine),
        protocol=_dict(ours.get("protocol")) or protocol_of(data["benchmarks"]),
        cells=tuple(cells),
        problems=tuple(_problems(path, data, cells)),
        run_id=_text(ours.get("run_id")),
    )


def _problems(path: Path, data: dict[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    version = data.get("version")
    if not isinstance(version, str) or not version:
        yield f"{path}: doesn't say which version of pytest-benchmark wrote it"
    elif version.partition(".")[0] not in KNOWN_MAJORS:
        known = " and ".join(KNOWN_MAJORS)
        yield f"{path}: was written by pytest-benchmark {version}; known are versions {known}"
    if not cells:
        yield f"{path}: holds no benchmarks"
    told = _dict(data.get(OURS)).get("problems")
    yield from (text for text in told if isinstance(text, str)) if isinstance(told, list) else ()


def _name(path: Path, place: int, benchmark: Any) -> str:
    for key in ("fullname", "name"):
        name = benchmark.get(key) if isinstance(benchmark, dict) else None
        if isinstance(name, str) and name:
            return name
    raise BadFile(f"{str(path)!r}: damaged: benchmark {place} of the list has no name")


def _cell(name: str, benchmark: dict[str, Any]) -> Cell:
    extra = _dict(benchmark.get("extra_info"))
    cell = _identity(name, extra)
    if not MEANING[cell.status].timed:
        return cell
    try:
        stats = msgspec.convert(benchmark.get("stats"), _Stats)
    except (msgspec.ValidationError, OverflowError) as failure:
        return replace(cell, status="error", reason=f"its stats are damaged: {failure}")
    quartiles = tuple(s * 1e9 for s in (stats.min, stats.q1, stats.median, stats.q3, stats.max))
    if any(low > high * (1 + _ROUNDING) for low, high in pairwise(quartiles)):
        return replace(cell, status="error", reason="its stats are damaged: its quartiles are not in order")
    return _with_processes(replace(cell, processes_ns=(quartiles[2],), calls_ns=quartiles), extra)


def _with_processes(cell: Cell, extra: dict[str, Any]) -> Cell:
    """A cell with the processes that attnbench wrote, if any; of status ``error`` where they are damaged."""
    if "processes_ns" not in extra:
        return cell
    try:
        found = msgspec.convert(extra, _Processes)
    except (msgspec.ValidationError, OverflowError) as failure:
        reason = f"its extra_info is damaged: {failure}"
        return replace(cell, status="error", reason=reason, processes_ns=(), calls_ns=())
    return replace(cell, **msgspec.structs.asdict(found))


def _identity(name: str, extra: dict[str, Any]) -> Cell:
    """A cell without times: what it is of, and what became of it."""
    case, backend, status = extra.get("case"), extra.get("backend"), extra.get("status", "ok")
    if not (isinstance(case, str) and case and isinstance(backend, str)):
        return Cell(case=name, rule="", backend="", status="ok")
    known = status in STATUSES if isinstance(status, str) else False
    return Cell(
        case=case,
        rule=_text(extra.get("rule")),
        backend=backend,
        status=status if known else "error",
        reason=_text(extra.get("reason")) if known else f"its status is {status!r}, which attnbench hasn't",
        fingerprint=_text(extra.get("fingerprint")),
    )


def _told_apart(names: Sequence[str], cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of one case and backend with the names of their benchmarks."""
    often = Counter(cell.key for cell in cells)
    return [
        replace(cell, case=f"{cell.case} ({name})") if often[cell.key] > 1 and cell.case != name else cell
        for name, cell in zip(names, cells, strict=True)
    ]


def _left_out(path: Path, ours: dict[str, Any]) -> Iterator[Cell]:
    """The cells that attnbench could not write as benchmarks."""
    listed = ours.get("left_out", [])
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise BadFile(f"{str(path)!r}: damaged: {OURS}.left_out is no list of cells")
    for place, entry in enumerate(listed, start=1):
        if not (isinstance(entry.get("case"), str) and isinstance(entry.get("backend"), str)):
            raise BadFile(f"{str(path)!r}: damaged: cell {place} of {OURS}.left_out has no name")
        cell = _identity("", entry)
        yield _with_processes(cell, entry) if MEANING[cell.status].timed else cell


def _refuse_twice(path: Path, cells: Sequence[Cell]) -> None:
    for (case, backend), times in Counter(cell.key for cell in cells).items():
        if times > 1:
            name = f"{case!r} of {backend!r}" if backend else repr(case)
            raise BadFile(f"{str(path)!r}: damaged: the benchmark {name} stands here {times} times")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
