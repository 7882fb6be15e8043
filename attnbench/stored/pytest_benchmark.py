"""Files of pytest-benchmark as ``Measured``. A stand-in until the reader of all its versions is joined up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnbench.types.errors import BadFile
from attnbench.types.measured import Cell, Measured


def read_pytest_benchmark(path: Path, data: dict[str, Any]) -> Measured:
    """What a file of pytest-benchmark says; ``data`` is its JSON.

    Raises:
        BadFile: it lacks what every version has.
    """
    try:
        machine, commit = data["machine_info"], data.get("commit_info") or {}
        cells = tuple(
            Cell(
                case=str(one["fullname"]),
                rule="",
                backend="",
                status="ok",
                processes_ns=(one["stats"]["median"] * 1e9,),
                calls_ns=tuple(
                    one["stats"][name] * 1e9 for name in ("min", "q1", "median", "q3", "max")
                ),
            )
            for one in data["benchmarks"]
        )  # fmt: skip
        return Measured(
            path=path,
            origin="pytest-benchmark",
            version=str(data["version"]),
            started=str(data["datetime"]),
            commit=str(commit.get("id") or ""),
            environment={
                "cpu": str((machine.get("cpu") or {}).get("brand_raw", "unknown")),
                "python": str(machine.get("python_version")),
            },
            protocol={},
            cells=cells,
        )
    except (KeyError, TypeError, AttributeError) as failure:
        raise BadFile(f"{str(path)!r} is no file of pytest-benchmark: {failure!r}") from failure
