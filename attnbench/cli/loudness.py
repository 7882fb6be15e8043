"""How much is said on stderr besides errors: ``--quiet`` and ``--verbose``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Loudness = Literal["quiet", "normal", "verbose"]

_SAID = "attnbench.loudness"
_TRACE = "ATTNBENCH_TRACE_PLUGINS"
"""As :data:`attnbench.plugins.tracing.TRACE`, without importing it for ``--help``."""


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
