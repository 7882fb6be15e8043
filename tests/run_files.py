"""Run files of a few records, for tests of what reads or shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnbench.results.format import RunWriter
from attnbench.types.record import EndLine, Manifest, Record


def write_records(path: Path, *records: Record, finished: bool = True, **manifest: Any) -> Path:
    """Write a run with these records; its manifest has their cases and backends unless others are given."""
    said: dict[str, Any] = {
        "format": 1, "run_id": path.stem, "started": "2026-01-01T00:00:00+00:00", "attnbench": "0.1.0",
        "command": [], "cases": list(dict.fromkeys(one.case for one in records)),
        "backends": list(dict.fromkeys(one.backend for one in records)), "named": [], "compiled_on": None,
        "protocol": {}, "plugins": [], "environment": {},
    }  # fmt: skip
    with RunWriter.create(path, Manifest(**(said | manifest))) as writer:
        for line in records:
            writer.append(line)
        if finished:
            writer.append(EndLine("2026-01-01T00:01:00+00:00", 60.0, {}))
    return path
