"""Records as a plugin's reporter renders them, and what it is told of their runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from attnbench.plugins.calling import Raised, call
from attnbench.plugins.registry import Entry
from attnbench.plugins.tracing import traced
from attnbench.types.errors import PluginFailed
from attnbench.types.record import Manifest
from attnbench.types.reporter import Reporter, Rows, RunFacts
from attnbench.types.words import clean


def reported(entry: Entry[Reporter], rows: Rows, runs: RunFacts) -> str:
    """The text that a reporter makes, ending in a newline.

    Raises:
        PluginFailed: it raised, or gave no text.
    """
    named = f"{entry.source}: the reporter {entry.record.name!r}"
    still = "the records are in their files: attnbench report prints them in another --format"
    try:
        with traced(named):
            text = call(entry.record.render, rows, runs)
    except Raised as failure:
        raise PluginFailed(f"plugin {named} raised {failure}; {still}") from failure
    if not isinstance(text, str):
        raise PluginFailed(f"plugin {named} gave {clean(text)}, where a text is needed; {still}")
    return text if text.endswith("\n") or not text else f"{text}\n"


def run_facts(
    manifests: Sequence[Manifest], paths: Sequence[Path], unfinished: Collection[Path]
) -> list[dict[str, Any]]:
    """What a reporter is told of each run; see :class:`~attnbench.types.reporter.Reporter`.

    paths: of their files. unfinished: those with a run that was cut off.
    """
    from msgspec import to_builtins

    return [
        to_builtins(manifest) | {"path": str(path), "finished": path not in unfinished}
        for manifest, path in zip(manifests, paths, strict=True)
    ]
