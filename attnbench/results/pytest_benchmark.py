"""Files of pytest-benchmark, its own and those that attnbench wrote, as measured cells."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

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

_QUARTILES = ("min", "q1", "median", "q3", "max")
_OTHERS = ("mean", "stddev", "iqr", "total", "ops", "iterations")
"""Numbers that nothing is compared by, and that tell of damage where they are none."""
_ROUNDING = 1e-9


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
    cell = _identity(name, _dict(benchmark.get("extra_info")))
    if not MEANING[cell.status].timed:
        return cell
    try:
        return _timed(cell, _dict(benchmark.get("stats")), _dict(benchmark.get("extra_info")))
    except _Damaged as damage:
        return replace(cell, status="error", reason=str(damage))


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


class _Damaged(ValueError):  # noqa: N818
    """What is wrong with the numbers of a benchmark, in words."""


def _timed(cell: Cell, stats: dict[str, Any], extra: dict[str, Any]) -> Cell:
    """A cell with its times; raises :class:`_Damaged`."""
    _check_rounds(stats)
    quartiles = tuple(_ns(stats.get(name), f"its {name}") for name in _QUARTILES)
    if any(low > high * (1 + _ROUNDING) for low, high in pairwise(quartiles)):
        raise _Damaged("its least time, quartiles, median and longest time contradict each other")
    for name in _OTHERS:
        _check_number(stats.get(name, 0), f"its {name}")
    if "processes_ns" not in extra:
        return replace(cell, processes_ns=(quartiles[2],), calls_ns=quartiles)
    return _with_processes(cell, extra)


def _with_processes(cell: Cell, extra: dict[str, Any]) -> Cell:
    """A cell with what attnbench wrote of its processes; raises :class:`_Damaged`."""
    parents = extra.get("parents", [])
    if not isinstance(parents, list) or any(type(parent) is not int for parent in parents):
        raise _Damaged("its parents is no list of whole numbers")
    reference = _dict(extra.get("reference_ns"))
    return replace(
        cell,
        processes_ns=_times(extra["processes_ns"], "processes_ns"),
        calls_ns=_times(extra["calls_ns"], "calls_ns") if "calls_ns" in extra else (),
        reference_ns={name: _times(times, f"reference_ns {name}") for name, times in reference.items()},
        parents=tuple(parents),
        ratio=_times([extra["ratio"]], "ratio")[0] if "ratio" in extra else None,
    )


def _check_rounds(stats: dict[str, Any]) -> None:
    if not stats:
        raise _Damaged("it has no stats")
    rounds, data = stats.get("rounds"), stats.get("data")
    if rounds == 0 or data == []:
        raise _Damaged("it has no rounds")
    if type(rounds) is not int or rounds < 0:
        raise _Damaged(f"its number of rounds is {rounds!r}")
    if data is None:
        return
    if not isinstance(data, list) or len(data) != rounds:
        raise _Damaged(f"its data aren't the {rounds} rounds that it says it has")
    for value in data:
        _ns(value, "a round")


def _ns(seconds: Any, what: str) -> float:
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        try:
            found = float(seconds) * 1e9
        except OverflowError:
            found = math.inf
        if 0 < found < math.inf:
            return found
    raise _Damaged(f"{what} is {_shown(seconds)}, which is no time in seconds")


def _check_number(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise _Damaged(f"{what} is {_shown(value)}, which is no number from 0 on")


def _times(values: Any, what: str) -> tuple[float, ...]:
    if not isinstance(values, list) or not values:
        raise _Damaged(f"its {what} is no list of numbers")
    for value in values:
        # JSON has whole numbers that are finite and yet too large for a float.
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if not known or not 0 < value <= sys.float_info.max:
            raise _Damaged(f"its {what} holds {_shown(value)}, where only a number above 0 can be")
    return tuple(float(value) for value in values)


def _shown(value: Any) -> str:
    """A value as it stands in a sentence; what is too long for one is "no number"."""
    shown = repr(value)
    return shown if len(shown) < 40 else "no number"


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
        try:
            if MEANING[cell.status].timed and "processes_ns" in entry:
                cell = _with_processes(cell, entry)
        except _Damaged as damage:
            cell = replace(cell, status="error", reason=str(damage))
        yield cell


def _refuse_twice(path: Path, cells: Sequence[Cell]) -> None:
    for (case, backend), times in Counter(cell.key for cell in cells).items():
        if times > 1:
            name = f"{case!r} of {backend!r}" if backend else repr(case)
            raise BadFile(f"{str(path)!r}: damaged: the benchmark {name} stands here {times} times")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
