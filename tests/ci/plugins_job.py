"""Check the suite smoke with the backends of packages under plugins/, and fail where one doesn't run a case.

Usage: python tests/ci/plugins_job.py FOLDER PACKAGE...

Each package has a file ``smoke.toml`` with a table for each of its backends: ``refuses``, the cases that it
can't run, or ``runs``, those it can, as words of their ids that no other case has; and ``dtype``, where all
cases must have another dtype. Cases that it can run must be ``ok`` (or have the ``status`` of the table), the
others ``unsupported``. With ``may_be_absent`` they may be ``unavailable`` instead.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed

PLUGINS = Path(__file__).parents[2] / "plugins"


def declared(packages: list[str]) -> dict[str, dict[str, Any]]:
    """Return the declarations of the packages about their backends, by name."""
    return {
        name: table
        for package in packages
        for name, table in tomllib.loads((PLUGINS / package / "smoke.toml").read_text()).items()
    }


def brought(packages: list[str]) -> tuple[set[str], list[str]]:
    """Return the names of the installed backends of the packages, and problems with them."""
    registry = load_registry(source for source in installed() if source.distribution in packages)
    missing = set(packages) - {entry.source.distribution for entry in registry.backends.values()}
    return set(registry.backends), [*registry.faults, *(f"{name} brings no backend" for name in missing)]


def checked(folder: str, backends: list[str], dtype: str | None) -> list[dict[str, Any]]:
    """Return the records of smoke with these backends."""
    words = [f"--backend={name}" for name in backends] + ([f"--dtype={dtype}"] if dtype else [])
    done = subprocess.run(
        ["attnbench", "check", "smoke", *words, "--out", folder, "--format", "json"],
        stdout=subprocess.PIPE,
        check=False,
    )
    records: list[dict[str, Any]] = json.loads(done.stdout)
    return records


def wrong_with(records: list[dict[str, Any]], declarations: dict[str, dict[str, Any]]) -> list[str]:
    """Return the differences between records and declarations, one sentence each."""
    found = []
    for backend, table in declarations.items():
        own = [record for record in records if record["backend"] == backend]
        words = table["runs" if "runs" in table else "refuses"]
        for word in words:
            hits = sum(word in record["case"] for record in own)
            if hits != 1:
                found.append(f"{backend} names {word!r}, which is in {hits} cases; it must be in one")
        for record in own:
            if table.get("may_be_absent") and record["status"] == "unavailable":
                continue
            named = any(word in record["case"] for word in words)
            wanted = table.get("status", "ok") if named == ("runs" in table) else "unsupported"
            if record["status"] != wanted:
                seen = f"{record['status']}, not {wanted}: {record['reason']}"
                found.append(f"{backend} on {record['case']}: {seen}")
    return found


def main(folder: str, *packages: str) -> None:
    """Check once for each dtype."""
    start = time.monotonic()
    declarations = declared(list(packages))
    backends, problems = brought(list(packages))
    problems += [f"no smoke.toml has a table for {name}" for name in sorted(backends - set(declarations))]
    problems += [
        f"smoke.toml has a table for {name}, but no package brings it"
        for name in sorted(set(declarations) - backends)
    ]
    by_dtype: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in sorted(backends & set(declarations)):
        by_dtype[declarations[name].get("dtype")].append(name)
    ok = 0
    for dtype, names in by_dtype.items():
        records = checked(folder, names, dtype)
        ok += sum(record["status"] == "ok" for record in records)
        problems += wrong_with(records, {name: declarations[name] for name in names})
    print(f"{ok} ok with {len(backends)} backends of plugins in {time.monotonic() - start:.0f} s")
    for problem in problems:
        print(f"FAILED: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
