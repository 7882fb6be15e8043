"""What a file of pytest-benchmark says of the machine, the commit and how it measured, under our names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

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
