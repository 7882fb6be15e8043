"""Commands of plugins in the command line: listed without importing them, imported when they're used."""

from __future__ import annotations

import textwrap
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING

import click

from attnbench.plugins.calling import Raised, call, tell
from attnbench.plugins.commands import PluginCommand, PluginCommands, plugin_commands
from attnbench.types.words import clean

if TYPE_CHECKING:
    from collections.abc import Collection

_KEPT = "attnbench.commands"
_INDENT = 4
"""Of a list in click's help: before the names, and between them and what is said of them."""


class Broken(Exception):  # noqa: N818
    """A plugin's command can't be used; the text says whose and why."""


def commands_here(ctx: click.Context, own: Collection[str]) -> PluginCommands:
    """The commands of plugins, looked for once in each command line."""
    meta = ctx.find_root().meta
    if _KEPT not in meta:
        meta[_KEPT] = plugin_commands(own)
    found: PluginCommands = meta[_KEPT]
    return found


def import_command(ctx: click.Context, command: PluginCommand) -> click.Command:
    """Import a command, once in each command line.

    Raises:
        Broken: it doesn't import, or is no command of click's.
    """
    from attnbench.plugins.tracing import traced

    meta = ctx.find_root().meta
    key = f"{_KEPT}.{command.name}"
    if key in meta:
        imported: click.Command = meta[key]
        return imported
    try:
        with traced(f"importing {command}"):
            found = call(_found, command.module)
    except Raised as failure:
        raise Broken(f"plugin {command}: does not import: {failure}") from failure
    if not isinstance(found, click.Command):
        raise Broken(f"plugin {command}: {clean(found)} is no command of click's")
    meta[key] = found
    return found


def _found(place: str) -> object:
    """What ``module:attribute`` names."""
    module, _, attribute = place.partition("[")[0].partition(":")
    return reduce(getattr, filter(None, attribute.strip().split(".")), import_module(module.strip()))


def write_commands(formatter: click.HelpFormatter, commands: PluginCommands) -> None:
    """A line for each command in a section of its own; on stderr, one for each that can't be used."""
    for fault in commands.faults:
        tell(fault)
    if not commands.by_name:
        return
    room = formatter.width - max(map(len, commands.by_name)) - _INDENT
    with formatter.section("Commands of plugins"):
        formatter.write_dl([(c.name, _line(c, room)) for c in commands.by_name.values()])


def _line(command: PluginCommand, room: int) -> str:
    said = f"{command.distribution} {command.version}" + (f": {command.summary}" if command.summary else "")
    return textwrap.shorten(said, room, placeholder=" …")
