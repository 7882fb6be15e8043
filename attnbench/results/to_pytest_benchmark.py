"""A run in the format of pytest-benchmark, which its ``pytest-benchmark compare`` and other tools read.

Each cell that is ``ok`` is a benchmark: its group is the case, its name the backend. Its rounds are
*processes*, the median time per call of each: they count as independent, while calls of one process do not.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnbench.results.merge import whole_file
from attnbench.results.pytest_benchmark import OURS, is_pytest_benchmark
from attnbench.types.compared import Cell, Measured
from attnbench.types.errors import BadInput

FORMAT = "5.3.1"
"""The version of pytest-benchmark that a file says it is of: the newest whose format this is known to be."""


def to_pytest_benchmark(run: Measured) -> dict[str, Any]:
    """A run as the JSON of pytest-benchmark; times in seconds.

    What has no time to show stands in ``attnbench.left_out``, with its status and reason;
    :func:`attnbench.results.pytest_benchmark.read_pytest_benchmark` gives all of it back.
    """
    return {
        "machine_info": _machine_info(run.environment),
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
        OURS: {
            "format": run.version,
            "run_id": run.run_id,
            "environment": run.environment,
            "protocol": run.protocol,
            "problems": list(run.problems),
            "left_out": [_extra_info(cell) for cell in run.cells if not is_benchmark(cell)],
        },
    }


def is_benchmark(cell: Cell) -> bool:
    """Whether a cell can be a benchmark: it is ``ok``, and was timed."""
    return cell.status == "ok" and bool(cell.processes_ns)


def _benchmark(cell: Cell) -> dict[str, Any]:
    times = [ns / 1e9 for ns in cell.processes_ns]
    return {
        "group": cell.case,
        "name": cell.backend or cell.case,
        "fullname": f"{cell.case}[{cell.backend}]" if cell.backend else cell.case,
        "params": {"case": cell.case, "rule": cell.rule, "backend": cell.backend},
        "param": cell.backend,
        "extra_info": _extra_info(cell),
        "options": {},
        "stats": stats_of(times),
    }


def _extra_info(cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = {
        "case": cell.case,
        "rule": cell.rule,
        "backend": cell.backend,
        "status": cell.status,
        "reason": cell.reason,
        "fingerprint": cell.fingerprint,
        "processes_ns": list(cell.processes_ns),
        "calls_ns": list(cell.calls_ns),
        "reference_ns": {name: list(times) for name, times in cell.reference_ns.items()},
        "parents": list(cell.parents),
        "ratio": cell.ratio,
    }
    return {name: value for name, value in found.items() if value or name in ("case", "backend")}


def stats_of(times: Sequence[float]) -> dict[str, Any]:
    """The stats of pytest-benchmark over one or more times, in seconds.

    Quartiles as ``statistics.quantiles`` has them, both ends counted. Outliers: beyond one standard deviation
    of the mean; beyond 1.5 interquartile ranges of the quartiles (Tukey). ld15iqr, hd15iqr: the least and
    largest time that isn't beyond.
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


def _machine_info(environment: dict[str, Any]) -> dict[str, Any]:
    """The facts that pytest-benchmark has names for; no host is named."""
    words = str(environment.get("system") or "").split()
    system, release, machine = (*words, "", "", "")[:3]
    return {
        "node": "",
        "processor": "",
        "machine": machine,
        "python_version": str(environment.get("python") or ""),
        "release": release,
        "system": system,
        "cpu": {"brand_raw": str(environment.get("cpu") or "")},
    }


def check_target(path: Path) -> None:
    """Raise :class:`BadInput` where the file can't be written; one of pytest-benchmark may be overwritten."""
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder; name a file for pytest-benchmark's JSON")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"can't write {str(path)!r}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadInput(f"can't write into the folder {str(path.parent)!r}: it is not writable")
    if path.exists() and not _may_go(path):
        raise BadInput(f"{str(path)!r} exists and is no file of pytest-benchmark; name another file")


def _may_go(path: Path) -> bool:
    try:
        return is_pytest_benchmark(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return False


def write_pytest_benchmark(run: Measured, path: Path) -> None:
    """Write a run in the format of pytest-benchmark; the file is there as a whole or as it was.

    Raises:
        BadInput: as :func:`check_target`, or where writing fails.
    """
    check_target(path)
    text = json.dumps(to_pytest_benchmark(run), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with whole_file(path, replaces=True) as file:
        file.write(text.encode())
