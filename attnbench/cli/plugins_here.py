"""The registry of the plugins that a command works with, its faults said aloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from attnbench.plugins.registry import Registry

_NAMED = "attnbench.plugins"


def _name(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> None:
    ctx.meta.setdefault(_NAMED, []).extend(words)


plugin_option = click.option(
    "--plugin", "-p", multiple=True, metavar="FILE.py|MODULE", expose_value=False, callback=_name,
    help="Load this plugin too, a file or an importable module; repeatable.",
)  # fmt: skip


def named_plugins(ctx: click.Context | None = None) -> tuple[str, ...]:
    """The files and modules that --plugin names, in this command line or that of a context."""
    return tuple((ctx or click.get_current_context()).meta.get(_NAMED, ()))


def load_plugins() -> Registry:
    """Load all plugins; one line on stderr for each fault.

    Raises:
        BadInput: one that --plugin names can't be used.
    """
    from attnbench.plugins.registry import load_and_tell

    return load_and_tell(named_plugins())
