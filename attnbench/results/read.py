"""A side of a comparison from files and folders, of either format, in any mix."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from attnbench.results.ours import read_ours
from attnbench.results.pytest_benchmark import read_pytest_benchmark
from attnbench.types.compared import Measured
from attnbench.types.errors import BadFile
from attnbench.types.uncollected import uncollected

_MOST_BYTES = 2 * 2**30
"""No file of pytest-benchmark is as large; one that is would not fit into memory as JSON."""


def read_side(paths: Sequence[Path]) -> list[Measured]:
    """Every run in files and folders, each file once; in folders what ends in .jsonl or .json.

    Raises:
        BadFile: missing, empty, damaged, of a newer format, or neither ours nor pytest-benchmark's; a folder
            without such a file.
    """
    return _each_once(map(_read, _files(paths)))


def _each_once(by_file: Iterable[list[Measured]]) -> list[Measured]:
    """The runs, of copies of one the fullest, which says so."""
    found: dict[str, Measured] = {}
    for place, run in enumerate(chain.from_iterable(by_file)):
        name = run.run_id or f"{place}"
        if name in found:
            here, again = found[name], run
            kept = here if len(here.cells) >= len(again.cells) else again
            other = again if kept is here else here
            note = f"{other.path}: the run {name} stands in {kept.path} too, and counts once"
            run = replace(kept, problems=(*kept.problems, note))
        found[name] = run
    return list(found.values())


def is_json_file(path: Path) -> bool:
    """Whether a file may be pytest-benchmark's: it is JSON by its name, and doesn't begin as ours do."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b'"kind"' not in file.readline(1000)
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure


def _files(paths: Sequence[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix in (".jsonl", ".json"))
            if not inside:
                raise BadFile(f"the folder {str(path)!r} holds no run (*.jsonl, *.json)")
        elif not path.exists():
            raise BadFile(f"there is no {str(path)!r}: nothing to compare")
        else:
            inside = [path]
        for file in inside:
            found.setdefault(file.resolve(), file)
    return list(found.values())


@uncollected()
def _read(path: Path) -> list[Measured]:
    """The runs of one file, told by how it begins: a manifest on its first line is ours."""
    try:
        if not path.is_file():
            raise BadFile(f"{str(path)!r} is no file")
        with path.open("rb") as file:
            begins = file.readline(1 << 16)
        if not begins.strip() and path.stat().st_size == len(begins):
            raise BadFile(f"{str(path)!r} is empty: nothing was measured, or the file was cut off")
        if b'"kind"' in begins[:1000] or path.suffix == ".jsonl":
            return read_ours(path)
        if path.stat().st_size > _MOST_BYTES:
            raise BadFile(f"{str(path)!r} is too large for a file of pytest-benchmark")
        data: Any = json.loads(path.read_bytes())
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure
    except (ValueError, RecursionError) as failure:
        raise BadFile(
            f"{str(path)!r} is neither a run of attnbench nor JSON of pytest-benchmark ({failure})"
        ) from failure
    if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list):
        raise BadFile(f"{str(path)!r} is neither a run of attnbench nor JSON of pytest-benchmark")
    return [read_pytest_benchmark(path, data)]
