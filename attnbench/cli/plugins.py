"""``attnbench plugins``: what is installed, what it brings, and what failed to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import print_listing
from attnbench.cli.parameters import load_plugins, plugin_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attnbench.plugins.commands import PluginCommand
    from attnbench.types.extensions import Source
    from attnbench.types.words import Format

_WHO = ("name", "distribution", "version", "module")
_SHOWN = ("name", "distribution", "version", "brings", "faults")


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
    from attnbench.cli.group import commands_here
    from attnbench.plugins.calling import tell
    from attnbench.plugins.kinds import KINDS

    registry = load_plugins()
    commands = commands_here(ctx)
    for sentence in (*commands.faults, *registry.notes):
        tell(sentence)
    faults = (*registry.faults, *commands.faults)
    rows = [_row(source, registry.brought_by(source), faults) for source in registry.plugins]
    nothing: dict[str, list[str]] = {kind.listed: [] for kind in KINDS}
    rows += [_row(one, nothing | {"commands": [one.name]}, faults) for one in commands.by_name.values()]
    if format_ in ("json", "csv"):
        print_listing(rows, list(rows[0]), format_)
    else:
        print_listing([_in_short(row) for row in rows], _SHOWN, format_)


def _in_short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Join all that a plugin brings into one column, to fit beside its name."""
    kinds = [kind for kind in row if kind not in (*_WHO, "faults") and row[kind]]
    return {**row, "brings": "; ".join(f"{kind}: {', '.join(row[kind])}" for kind in kinds)}


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
