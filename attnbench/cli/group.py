"""Groups of commands, imported when they are used; each failure is one line on stderr and an exit status."""

from __future__ import annotations

import errno
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.output import loudness, say
from attnbench.plugins.calling import Raised, call, strict, tell, traced
from attnbench.plugins.commands import GROUP, PluginCommand, PluginCommands, plugin_commands
from attnbench.types.errors import AttnbenchError
from attnbench.types.words import clean, one_line, unknown_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TRACEBACK = "ATTNBENCH_TRACEBACK"
"""The environment variable that shows the traceback of an unexpected failure."""


class CommandFailure(click.ClickException):
    """A failure that ends a command with one line on stderr and its own exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """Print the line."""
        say(f"attnbench: {' '.join(self.message.split())}", err=True)


@contextmanager
def one_line_errors(culprit: Callable[[], str]) -> Iterator[None]:
    """Turn every exception into a :class:`CommandFailure`.

    culprit: names the plugin whose command runs, or "".
    """
    try:
        yield
    except click.UsageError as wrong:
        if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
            raise
        message = wrong.format_message()
        message += "" if message.endswith((".", "?", "?)")) else "."
        message += "" if wrong.ctx is None else f" Try {wrong.ctx.command_path} --help."
        raise CommandFailure(message, 2) from wrong
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except AttnbenchError as failure:
        raise CommandFailure(str(failure), failure.exit_code) from failure
    except KeyboardInterrupt as failure:
        raise CommandFailure("interrupted", 130) from failure
    except OSError as failure:
        if failure.errno == errno.EPIPE:
            # The reader of stdout went away (attnbench list cases | head). End quietly, as if by the signal:
            # click would exit with 1, which stands for a failed check.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            raise click.exceptions.Exit(128 + signal.SIGPIPE) from failure
        if failure.errno == errno.ENAMETOOLONG:
            raise CommandFailure(f"the name of a file is too long: {clean(failure.filename)}", 2) from failure
        if failure.errno in (errno.EMFILE, errno.ENFILE):
            raise CommandFailure("too few file descriptors: allow more, as by ulimit -n 1024", 2) from failure
        where = f" {str(failure.filename)!r}" if failure.filename is not None else ""
        raise CommandFailure(f"{failure.strerror or failure}{where}", 3) from failure
    except Exception as failure:
        # A mistake of ours, or of a plugin's code in this process: never status 1, a failed check.
        shown = os.environ.get(TRACEBACK) or strict() or loudness() == "verbose"
        if shown:
            import traceback

            say(traceback.format_exc(), err=True, nl=False)
        hint = "(see above where)" if shown else f"(set {TRACEBACK}=1 to see where)"
        raise CommandFailure(f"{culprit()}unexpected {one_line(failure)} {hint}", 3) from failure


_KEPT = "attnbench.commands"
_INDENT = 4
"""Columns in click's help before the names of commands, and between a name and its summary."""


class NamingGroup(click.Group):
    """A group that lists commands as they were added, and suggests the nearest name for an unknown one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words name, with our sentence for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if args[0].startswith("-"):
                raise
            ctx.fail(unknown_name("command", args[0], self.list_commands(ctx)))


class LazyGroup(NamingGroup):
    """The group of all commands: attnbench's own, then those of plugins.

    sections: by what people do, a line for each of attnbench's commands, so that listing them imports none.
    The module ``attnbench.cli.NAME`` holds each as ``command``.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, str]], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.sections = sections
        self.summaries = {name: line for lines in sections.values() for name, line in lines.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which a newcomer needs them."""
        return [*self.summaries, *commands_here(ctx).by_name]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a name; raises :class:`CommandFailure` if a plugin's can't be used."""
        if cmd_name in self.summaries:
            command: click.Command = import_module(f"attnbench.cli.{cmd_name.replace('-', '_')}").command
            return command
        found = commands_here(ctx).by_name.get(cmd_name)
        try:
            return None if found is None else _imported(found)
        except CommandFailure:
            # The shell, while it completes, shows no faults.
            if ctx.resilient_parsing:
                return None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands, without importing any, and options."""
        from click.shell_completion import CompletionItem

        of_plugins = commands_here(ctx).by_name.values()
        lines = dict(self.summaries) | {command.name: command.summary for command in of_plugins}
        names = [name for name in lines if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=lines[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, and on stderr the commands that can't be used."""
        found = commands_here(ctx)
        for fault in found.faults:
            tell(fault)
        longest = max(map(len, [*self.summaries, *found.by_name]))
        sections = dict(self.sections)
        sections["Commands of plugins"] = {
            name: _line(one, formatter.width - longest - _INDENT) for name, one in found.by_name.items()
        }
        for head, lines in sections.items():
            if lines:
                with formatter.section(head):
                    formatter.write_dl([(name.ljust(longest), line) for name, line in lines.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the options; every failure is one line."""
        with one_line_errors(str):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every failure is one line."""

        def culprit() -> str:
            command = commands_here(ctx).by_name.get(ctx.invoked_subcommand or "")
            return "" if command is None else f"plugin {command}: "

        with one_line_errors(culprit):
            return super().invoke(ctx)


def commands_here(ctx: click.Context) -> PluginCommands:
    """Return the commands of plugins, found once for each command line."""
    root = ctx.find_root()
    if _KEPT not in root.meta:
        root.meta[_KEPT] = plugin_commands(getattr(root.command, "summaries", {}))
    found: PluginCommands = root.meta[_KEPT]
    return found


def _imported(command: PluginCommand) -> click.Command:
    """Import a command; raises :class:`CommandFailure` if it does not import or is not a command of click."""
    from importlib.metadata import EntryPoint

    try:
        with traced(f"importing {command}"):
            found = call(EntryPoint(command.name, command.module, GROUP).load)
    except Raised as failure:
        raise CommandFailure(f"plugin {command}: cannot be imported: {failure}", 3) from failure
    if not isinstance(found, click.Command):
        raise CommandFailure(f"plugin {command}: {clean(found)} is not a click command", 3)
    return found


def _line(command: PluginCommand, room: int) -> str:
    line = f"{command.distribution} {command.version}" + (f": {command.summary}" if command.summary else "")
    return textwrap.shorten(line, room, placeholder=" …")
