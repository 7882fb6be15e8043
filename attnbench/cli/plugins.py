"""``attnbench plugins``: what is installed, what it brings, and what failed to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import print_listing
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnbench.plugins.commands import PluginCommand
    from attnbench.types.formats import Format
    from attnbench.types.source import Source

_SHOWN_BY = ("name", "distribution", "version", "module")


@click.command("plugins")
@plugin_option
@format_option
@click.pass_context
def command(ctx: click.Context, /, *, format_: Format) -> None:
    """List plugins, what each brings, and what failed to load.

    \b
    attnbench plugins
    attnbench plugins --plugin my_kernel.py --format json
    """
    from attnbench.cli.plugin_commands import commands_here
    from attnbench.plugins.calling import tell
    from attnbench.plugins.kinds import KINDS

    registry = load_plugins()
    commands = commands_here(ctx, getattr(ctx.find_root().command, "summaries", ()))
    for fault in commands.faults:
        tell(fault)
    faults = (*registry.faults, *commands.faults)
    rows = [_row(source, registry.brought_by(source), faults) for source in registry.plugins]
    nothing: dict[str, list[str]] = {kind.listed: [] for kind in KINDS}
    rows += [_row(one, nothing | {"commands": [one.name]}, faults) for one in commands.by_name.values()]
    print_listing(rows, _columns(rows), format_)


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What tables show: who, and the kinds of which any plugin brings something."""
    kinds = [name for name in rows[0] if name not in _SHOWN_BY] if rows else []
    return [*_SHOWN_BY, *(kind for kind in kinds if kind == "faults" or any(row[kind] for row in rows))]


def _row(by: Source | PluginCommand, brought: dict[str, list[str]], faults: Iterable[str]) -> dict[str, Any]:
    return {
        "name": by.name,
        "distribution": by.distribution,
        "version": by.version,
        "module": by.module,
        **brought,
        "commands": brought.get("commands", []),
        "faults": [fault.removeprefix(f"{by}: ") for fault in faults if fault.startswith(f"{by}: ")],
    }
