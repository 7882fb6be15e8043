"""Runs made by hand: cells with given times, and files of both formats that hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec
from hypothesis import strategies as st

from attnbench.results.digest import digested
from attnbench.runner.options import Options
from attnbench.types.compared import Cell, Measured
from attnbench.types.record import (
    FORMAT_VERSION,
    CandidatePlan,
    CaseLine,
    EndLine,
    MachineScale,
    Manifest,
    PluginLine,
    Record,
    RepetitionLine,
    SegmentSamples,
)
from attnbench.types.status import MEANING, STATUSES, Status

GOLDEN = Path(__file__).parent / "golden"
SHORT = "attention/dot/B1-H1-Lq16-Lk16-D8/none/float32/cpu/forward"
LONG = "attention/dot/B1-H1-Lq64-Lk64-D8/none/float32/cpu/forward"
ENVIRONMENT: dict[str, Any] = {
    "cpu": "Made CPU", "cpu_quota": 2, "governor": None, "system": "Linux 6.1", "python": "3.11.7",
    "load_average": [0.1, 0.1, 0.1], "libraries": {"numpy": "2.0", "torch": "2.6", "pandas": "2.2"},
    "torch": "2.6", "torch_flags": {"threads": "1", "build": "made " * 20}, "cuda_devices": [],
    "git_commit": "abc123",
}  # fmt: skip
BESIDE = ("one", "two", "three", "four")
"""Backends that don't change, so that a case tells what the machine did."""


def times(middle_ns: float, *, count: int = 9, spread: float = 0.004) -> tuple[float, ...]:
    """So many times around a middle, evenly spread over this share of it, in a mixed order."""
    places = [(i - (count - 1) / 2) / max(1, count - 1) for i in range(count)]
    mixed = Random(count).sample(places, count)
    return tuple(middle_ns * (1 + spread * place) for place in mixed)


def cell(
    backend: str = "mine", case: str = SHORT, middle_ns: float = 1e5, *, status: Status = "ok", **more: Any
) -> Cell:
    """A cell of nine processes, 0.4 % apart, three of each server, unless said otherwise."""
    said: dict[str, Any] = {
        "case": case, "rule": "dot", "backend": backend, "status": status,
        "processes_ns": times(middle_ns) if status == "ok" else (), "fingerprint": "256 pairs",
        "reference_ns": {"gemm_256": (4e5,) * 9, "copy": (4e3,) * 9, "empty": (60.0,) * 9},
        "parents": (0, 1, 2) * 3,
    }  # fmt: skip
    return Cell(**(said | more))


def side(*cells: Cell, **more: Any) -> Measured:
    """A run of these cells."""
    said: dict[str, Any] = {
        "path": Path("side.jsonl"), "origin": "attnbench", "version": "1",
        "started": "2026-01-01T00:00:00+00:00",
        "commit": "abc", "environment": {"cpu": "Made CPU", "torch": "2.6"},
        "protocol": {"launches": 3, "repetitions": 9}, "cells": tuple(cells),
    }  # fmt: skip
    return Measured(**(said | more))


def beside(case: str = SHORT, factor: float = 1.0) -> list[Cell]:
    """Four more backends of a case, all moved by one factor."""
    return [cell(name, case, 1e5 * factor * (2 + i)) for i, name in enumerate(BESIDE)]


Times = Mapping[str, Sequence[float]]


def run_lines(
    cells: Mapping[str, Times] | None = None,
    *,
    statuses: Mapping[tuple[str, str], Status] | None = None,
    environment: Mapping[str, Any] | None = None,
    protocol: Mapping[str, Any] | None = None,
    candidate: Mapping[str, Any] | None = None,
    ended: bool = True,
    inputs: int = 1,
    started: str = "2026-01-01T00:00:00+00:00",
) -> list[Any]:
    """The lines of a whole run: by case and backend the times in ns of each repetition."""
    if cells is None:
        cells = {SHORT: {name: times(1e5 * (1 + i)) for i, name in enumerate(("mine", *BESIDE))}}
    statuses = statuses or {}
    backends = list(dict.fromkeys(name for by in cells.values() for name in by))
    backends += [name for _, name in statuses if name not in backends]
    plan: dict[str, Any] = {
        "calls": 1, "samples": 1, "warm_calls": 0, "repetitions": 9, "accuracy": None, "prepare_ms": 1.0,
        "first_call_ms": 1.0, "warmup_ms": [0.1], "fresh": True, "anew": True,
    }  # fmt: skip
    planned = CandidatePlan(**(plan | dict(candidate or {})))
    lines: list[Any] = [
        Manifest(
            FORMAT_VERSION, "run", started, "0.1.0", ["attnbench"], list(cells), backends, [], None,
            Options().protocol() | dict(protocol or {}), [PluginLine("backends", "attnbench", "0.1.0")],
            ENVIRONMENT | dict(environment or {}), inputs=inputs,
        )
    ]  # fmt: skip
    for case, by_backend in cells.items():
        lines.append(CaseLine(case, 1, 1, 256, 1e4, 1e4, dict.fromkeys(by_backend, planned)))
        for index in range(max((len(taken) for taken in by_backend.values()), default=0)):
            blocks = {
                name: [_block(taken[index])] for name, taken in by_backend.items() if index < len(taken)
            }
            scale = MachineScale({256: [400_000, 410_000]}, 1024, [4_000] * 3, [60.0] * 3)
            lines.append(RepetitionLine(case, index, [0], list(blocks), {}, blocks, list(blocks), {}, scale))
        said = {name: statuses.get((case, name), "ok") for name in backends}
        for name, status in said.items():
            reason = "" if status == "ok" else f"as it is {status}"
            taken = by_backend.get(name) if status == "ok" else None
            lines.append(Record(case, "dot", name, status, reason, median(taken) / 1e6 if taken else None))
    if ended:
        lines.append(EndLine("2026-01-01T00:01:00+00:00", 60.0, {}))
    return lines


def _block(ns: float) -> SegmentSamples:
    wall = [round(ns) - 10, round(ns), round(ns) + 10]
    return SegmentSamples(0, [0, 1, 2], 1, wall, wall, [0] * 3, [0] * 3)


def write_run(path: Path, lines: Sequence[Any] | None = None, **said: Any) -> Path:
    """A run file of these lines, or of :func:`run_lines`."""
    lines = run_lines(**said) if lines is None else lines
    path.write_bytes(b"".join(digested(map(msgspec.json.encode, lines))))
    return path


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / name).read_text())
    return found


def write_benchmarks(path: Path, middles_s: Mapping[str, float], **more: Any) -> Path:
    """A file as pytest-benchmark writes it: a benchmark for each name, its calls 10 % apart."""
    data = golden("v5-json.json")
    (one, *_) = data["benchmarks"]
    shares = {"min": 0.9, "q1": 0.95, "median": 1.0, "q3": 1.05, "max": 1.2}
    data["benchmarks"] = [
        one
        | {"name": name, "fullname": f"test_it.py::{name}"}
        | {"stats": one["stats"] | {key: share * s for key, share in shares.items()}}
        for name, s in middles_s.items()
    ]
    path.write_text(json.dumps(data | more))
    return path


CASES = [f"attention/dot/B1-H1-Lq{n}-Lk{n}-D2/none/float32/cpu/forward" for n in (2, 3)]

times_ns = st.floats(min_value=1, max_value=1e12)
words = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=5)
"""Readers write out what is not printable."""


@st.composite
def cells(draw: st.DrawFn, case: str, backend: str) -> Cell:
    status = draw(st.sampled_from(STATUSES))
    processes = draw(st.lists(times_ns, max_size=5)) if MEANING[status].timed else []
    if not processes:
        return Cell(case, "dot", backend, status, reason=draw(words))
    each = st.lists(times_ns, min_size=len(processes), max_size=len(processes)).map(tuple)
    return Cell(
        case,
        "dot",
        backend,
        status,
        reason="" if status == "ok" else draw(words),
        processes_ns=tuple(processes),
        calls_ns=draw(st.sampled_from([(), (1.0, 2.0, 3.0, 4.0, 5.0)])),
        reference_ns=draw(st.dictionaries(st.sampled_from(["copy", "empty"]), each)),
        fingerprint=draw(words),
        parents=tuple(range(len(processes))),
        ratio=draw(st.none() | st.floats(0.1, 10)),
    )


@st.composite
def measured(draw: st.DrawFn) -> Measured:
    """A run of ours as its reader gives it."""
    names = st.tuples(st.sampled_from(CASES), st.sampled_from(["eager", "bmm", "ümlaut"]))
    keys = draw(st.lists(names, unique=True))
    return Measured(
        path=Path("run.jsonl"),
        origin="attnbench",
        version="2",
        started=f"2026-01-{draw(st.integers(1, 28)):02}T00:00:00+00:00",
        commit=draw(st.sampled_from(["", "abc123", "abc123-dirty"])),
        environment={"cpu": "Zen", "system": "Linux 6.1 x86_64", "python": "3.12.1", "cpus_allowed": [0, 1]},
        protocol={"repetitions": 9, "baseline": "eager", "delta": 0.02},
        cells=tuple(draw(cells(*key)) for key in keys),
        run_id=draw(st.sampled_from(["", "20260101T000000-0a1b2c3d"])),
        problems=draw(st.sampled_from([(), ("was cut off",)])),
    )


def ok(backend: str, *ms: float, case: str = CASES[0], **fields: Any) -> Cell:
    """A cell that was timed in one process for each time."""
    return Cell(case, "dot", backend, "ok", processes_ns=tuple(1e6 * time for time in ms), **fields)
