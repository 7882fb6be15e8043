"""Plugins that stand in a project's ``conftest.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from attnbench import hookspecs
from attnbench.plugins.sources import named
from attnbench.types.extensions import Source


def sources_of(config: pytest.Config) -> list[Source]:
    """The ``conftest.py`` files of a session that implement hooks of attnbench, as plugins.

    Each is what pytest has imported already; workers import it from its file.
    """
    found = []
    for module in config.pluginmanager.get_plugins():
        file = getattr(module, "__file__", None)
        if isinstance(module, ModuleType) and file and file.endswith("conftest.py") and any(_hooks(module)):
            source = named(file)
            sys.modules.setdefault(source.module, module)
            found.append(source)
    return sorted(found, key=lambda source: source.path)


def _hooks(module: ModuleType) -> Iterator[str]:
    """Names of hooks, also of those that are not marked yet: whoever loads them says so."""
    for name, value in vars(module).items():
        called = name.startswith(f"{hookspecs.PROJECT}_") and hasattr(hookspecs, name)
        if callable(value) and (called or hasattr(value, f"{hookspecs.PROJECT}_impl")):
            yield name
