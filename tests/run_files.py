"""Run files of a few records, for tests of what reads or shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnbench.results.format import RunWriter
from attnbench.types.record import EndLine, Manifest, Record


def manifest_of(**said: Any) -> Manifest:
    """The first line of a run, with these fields and nothing else of interest."""
    plain: dict[str, Any] = {
        "format": 2, "run_id": "r", "started": "2026-01-01T00:00:00+00:00", "attnbench": "0.1.0",
        "command": [], "cases": [], "backends": [], "named": [], "compiled_on": None, "protocol": {},
        "plugins": [], "environment": {},
    }  # fmt: skip
    return Manifest(**(plain | said))


def write_records(path: Path, *records: Record, finished: bool = True, **said: Any) -> Path:
    """Write a run with these records; its manifest has their cases and backends unless others are given."""
    found = {
        "run_id": path.stem,
        "cases": list(dict.fromkeys(one.case for one in records)),
        "backends": list(dict.fromkeys(one.backend for one in records)),
    }
    with RunWriter.create(path, manifest_of(**(found | said))) as writer:
        for line in records:
            writer.append(line)
        if finished:
            writer.append(EndLine("2026-01-01T00:01:00+00:00", 60.0, {}))
    return path
