"""Data to stdout, notes to stderr: how much, how wide and how colourful."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from attnbench.compare.gate import GateResult
    from attnbench.reports.judged import Judged
    from attnbench.types.compared import Compared
    from attnbench.types.formats import Format


Command = TypeVar("Command", bound=Callable[..., Any])
Loudness = Literal["quiet", "normal", "verbose"]

_SAID = "attnbench.loudness"
_TRACE = "ATTNBENCH_TRACE_PLUGINS"
"""As :data:`attnbench.plugins.calling.TRACE`, without importing it for ``--help``."""


def loudness_options(command: Command) -> Command:
    """Give the group ``--quiet`` and ``--verbose``."""
    quiet = click.option(
        "--quiet", "-q", "quiet", is_flag=True, expose_value=False, callback=_say,
        help="Say nothing on stderr but errors and warnings: no progress, no notes.",
    )  # fmt: skip
    verbose = click.option(
        "--verbose", "-v", "verbose", is_flag=True, expose_value=False, callback=_say,
        help="Say each step of each case, how long plugins take, and where a failure came from.",
    )  # fmt: skip
    return quiet(verbose(command))


def loudness() -> Loudness:
    """What this command line asked for."""
    ctx = click.get_current_context(silent=True)
    said: Loudness = "normal" if ctx is None else ctx.meta.get(_SAID, "normal")
    return said


def note(text: str) -> None:
    """Say on stderr what is neither an error nor a warning, unless that isn't wanted."""
    if loudness() != "quiet":
        click.echo(text, err=True)


def _say(ctx: click.Context, param: click.Parameter, said: bool) -> None:
    if not said:
        return
    if _SAID in ctx.meta:
        raise click.UsageError("--quiet and --verbose: say one of them", ctx)
    ctx.meta[_SAID] = param.name
    if param.name == "verbose" and _TRACE not in os.environ:
        # Loading knows no command line; the variable lasts as long as the command.
        os.environ[_TRACE] = "1"
        ctx.call_on_close(lambda: os.environ.pop(_TRACE, None))


PIPE_WIDTH = 120


def print_records(judged: Sequence[Judged], format_: Format, *, trace: bool = False) -> None:
    """Print records and their verdicts in a format; ``trace``: what each call ran too."""
    from attnbench.reports.render import render

    print_text(render(judged, format_, width=width(), colour=colourful(), trace=trace))


def print_compared(compared: Compared, gate: GateResult, format_: Format) -> None:
    """Print a comparison and what the gate says of it."""
    from attnbench.reports.compared import render_compared

    print_text(render_compared(compared, gate, format_, width=width(), colour=colourful()))


def print_listing(rows: Sequence[dict[str, Any]], columns: Sequence[str], format_: Format) -> None:
    """Print rows; a table shows ``columns``."""
    from attnbench.reports.formats import listing

    print_text(listing(rows, columns, format_, width=width(), colour=colourful()))


def width() -> int:
    """Columns of the terminal, or of COLUMNS; 120 where stdout is neither."""
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def colourful() -> bool:
    """Whether stdout is a terminal whose user hasn't asked for no colour (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_text(text: str) -> None:
    """Print a text that ends in its own newline."""
    click.echo(text, nl=False)
