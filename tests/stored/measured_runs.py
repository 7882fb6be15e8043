"""Runs made up for tests: ``Measured`` values, drawn or by hand, and files of pytest-benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from attnbench.types.compared import Cell, Measured
from attnbench.types.status import MEANING, STATUSES

GOLDEN = Path(__file__).parent / "golden"
CASES = [f"attention/dot/B1-H1-Lq{n}-Lk{n}-D2/none/float32/cpu/forward" for n in (2, 3)]

times_ns = st.floats(min_value=1, max_value=1e12)


@st.composite
def cells(draw: st.DrawFn, case: str, backend: str) -> Cell:
    status = draw(st.sampled_from(STATUSES))
    processes = draw(st.lists(times_ns, max_size=5)) if MEANING[status].timed else []
    if not processes:
        return Cell(case, "dot", backend, status, reason=draw(st.text(max_size=5)))
    each = st.lists(times_ns, min_size=len(processes), max_size=len(processes)).map(tuple)
    return Cell(
        case,
        "dot",
        backend,
        status,
        reason="" if status == "ok" else draw(st.text(max_size=5)),
        processes_ns=tuple(processes),
        calls_ns=draw(st.sampled_from([(), (1.0, 2.0, 3.0, 4.0, 5.0)])),
        reference_ns=draw(st.dictionaries(st.sampled_from(["copy", "empty"]), each)),
        fingerprint=draw(st.text(max_size=5)),
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
        version="1",
        started=f"2026-01-{draw(st.integers(1, 28)):02}T00:00:00+00:00",
        commit=draw(st.sampled_from(["", "abc123", "abc123-dirty"])),
        environment={"cpu": "Zen", "system": "Linux 6.1 x86_64", "python": "3.12.1", "cpus_allowed": [0, 1]},
        protocol={"sets": 9, "baseline": "eager", "delta": 0.02},
        cells=tuple(draw(cells(*key)) for key in keys),
        run_id=draw(st.sampled_from(["", "20260101T000000-0a1b2c3d"])),
        problems=draw(st.sampled_from([(), ("was cut off",)])),
    )


def run_of(*found: Cell, started: str = "2026-01-01T00:00:00+00:00", **fields: Any) -> Measured:
    """A run of ours with these cells."""
    said: dict[str, Any] = {
        "path": Path("run.jsonl"), "origin": "attnbench", "version": "1", "commit": "abc123",
        "environment": {"cpu": "Zen"}, "protocol": {"baseline": "eager"},
    }  # fmt: skip
    return Measured(started=started, cells=found, **(said | fields))


def ok(backend: str, *ms: float, case: str = CASES[0], **fields: Any) -> Cell:
    """A cell that was timed in one process for each time."""
    return Cell(case, "dot", backend, "ok", processes_ns=tuple(1e6 * time for time in ms), **fields)


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / name).read_text())
    return found
