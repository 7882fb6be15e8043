"""``attnbench plugins``: what is installed, what it brings, and what failed to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import print_listing
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.reports.formats import Format
    from attnbench.types.source import Source

COLUMNS = ("name", "distribution", "version", "module", "rules", "backends", "suites", "verdicts", "faults")


@click.command("plugins")
@plugin_option
@format_option
def command(format_: Format) -> None:
    """List plugins, what each brings, and what failed to load."""
    registry = load_plugins()
    print_listing([_row(source, registry) for source in registry.plugins], COLUMNS, format_)


def _row(source: Source, registry: Registry) -> dict[str, Any]:
    def brought(entries: dict[str, Entry[Any]]) -> list[str]:
        return [name for name, entry in entries.items() if entry.source == source]

    return {
        "name": source.name,
        "distribution": source.distribution,
        "version": source.version,
        "module": source.module,
        "rules": brought(registry.rules),
        "backends": brought(registry.backends),
        "suites": brought(registry.suites),
        "verdicts": brought(registry.verdict_rules),
        "faults": [fault for fault in registry.faults if str(source) in fault],
    }
