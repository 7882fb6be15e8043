"""A group of commands that are imported when they are used, those of plugins included."""

from __future__ import annotations

import errno
import os
import signal
import sys
import textwrap
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.output import loudness
from attnbench.plugins.calling import Raised, call, tell
from attnbench.plugins.commands import PluginCommand, PluginCommands, plugin_commands
from attnbench.types.words import clean

if TYPE_CHECKING:
    from collections.abc import Collection

    from click.shell_completion import CompletionItem


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
    from attnbench.plugins.calling import traced

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


TRACEBACK = "ATTNBENCH_TRACEBACK"
"""The variable of the environment that shows a traceback where one sentence stands otherwise."""


class Failure(click.ClickException):
    """A failure that ends a command with one line on stderr and its own exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """Print the line."""
        click.echo(f"attnbench: {' '.join(self.message.split())}", err=True)


class NamingGroup(click.Group):
    """A group that lists commands as they were added, and names the nearest where one isn't known."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but for the sentence."""
        from attnbench.types.words import unknown_name

        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            ctx.fail(unknown_name("command", name, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; wrong usage says of which, as click does not where an option lacks its value."""
        try:
            return super().invoke(ctx)
        except click.UsageError as wrong:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            if wrong.ctx is None and command is not None:
                wrong.ctx = click.Context(command, info_name=ctx.invoked_subcommand, parent=ctx)
            raise


class LazyGroup(NamingGroup):
    """The group of all commands: our own, and after them those that plugins bring.

    Each of ours is held as ``command`` by the module of its name beside this one. summaries: one line for
    each, so that listing them imports none.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order in which a newcomer needs them."""
        return [*self.summaries, *self._brought(ctx).by_name]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; one of a plugin that can't be is a :class:`Failure`."""
        if cmd_name in self.summaries:
            command: click.Command = import_module(f"attnbench.cli.{cmd_name}").command
            return command
        brought = self._brought(ctx).by_name.get(cmd_name)
        if brought is None:
            return None

        try:
            return import_command(ctx, brought)
        except Broken as failure:
            # The shell, while it completes, is told nothing.
            if ctx.resilient_parsing:
                return None
            raise Failure(str(failure), 3) from failure

    def _brought(self, ctx: click.Context) -> PluginCommands:

        return commands_here(ctx, self.summaries)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin so, none of which is imported, and options."""
        from click.shell_completion import CompletionItem

        lines = dict(self.summaries) | {c.name: c.summary for c in self._brought(ctx).by_name.values()}
        names = [name for name in lines if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=lines[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

        write_commands(formatter, self._brought(ctx))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click does it; wrong usage, Ctrl-C and a disk that is full become a :class:`Failure`."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as wrong:
            raise _one_line(wrong) from wrong
        except (KeyboardInterrupt, OSError) as failure:
            raise _failed(failure) from failure

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; wrong usage and failures of ours or the machine's become a :class:`Failure`."""
        try:
            return self._invoke(ctx)
        except (KeyboardInterrupt, OSError) as failure:
            raise _failed(failure) from failure

    def _invoke(self, ctx: click.Context) -> Any:
        from attnbench.types.errors import AttnbenchError

        try:
            return super().invoke(ctx)
        except click.UsageError as wrong:
            raise _one_line(wrong) from wrong
        except AttnbenchError as failure:
            raise Failure(str(failure), failure.exit_code) from failure
        except (click.ClickException, click.exceptions.Exit, click.Abort, OSError):
            raise
        except Exception as failure:
            # A mistake of ours, or of a plugin's code that runs here: never status 1, a failed check.
            from attnbench.plugins.calling import strict

            if os.environ.get(TRACEBACK) or strict():
                raise
            if loudness() == "verbose":
                import traceback

                click.echo(traceback.format_exc(), err=True, nl=False)
            from attnbench.types.words import one_line

            command = self._brought(ctx).by_name.get(ctx.invoked_subcommand or "")
            whose = "" if command is None else f"plugin {command}: "
            raise Failure(
                f"{whose}unexpected {one_line(failure)} (set {TRACEBACK}=1 to see where)", 3
            ) from failure


def _failed(failure: KeyboardInterrupt | OSError) -> Exception:
    """A command that was ended from outside, as what it ends with."""
    if isinstance(failure, KeyboardInterrupt):
        return Failure("interrupted", 130)
    if failure.errno == errno.EPIPE:
        # A reader that has gone away (attnbench list cases | head): quiet, and as if the signal had ended us,
        # since 1, which click would end with, is a check that failed.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        return click.exceptions.Exit(128 + signal.SIGPIPE)
    where = f" {str(failure.filename)!r}" if failure.filename is not None else ""
    return Failure(f"{failure.strerror or failure}{where}", 3)


def _one_line(wrong: click.UsageError) -> click.ClickException:
    """Wrong usage as a sentence; without a context it's that of the group itself."""
    if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
        return wrong
    message = wrong.format_message()
    where = "attnbench" if wrong.ctx is None else wrong.ctx.command_path
    return Failure(f"{message}{'' if message.endswith(('.', '?', '?)')) else '.'} Try {where} --help.", 2)
