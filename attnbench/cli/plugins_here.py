"""The registry of installed plugins, its faults said aloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from attnbench.plugins.registry import Registry


def load_plugins() -> Registry:
    """Load all plugins; one line on stderr for each fault."""
    from attnbench.plugins.registry import load_registry

    registry = load_registry()
    for fault in registry.faults:
        click.echo(f"attnbench: plugin {fault}", err=True)
    return registry
