"""A registry for two sides: each backend is there once for each side that has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from attnbench.plugins.registry import Registry
from attnbench.types.sides import SIDES


def two_sided(registry: Registry, backends: Mapping[str, Collection[str]]) -> Registry:
    """The registry with its backends by side, under the names of contenders, the two of a backend together.

    backends: by side, the names it has.
    """
    entries = [
        replace(entry, side=side)
        for name, entry in registry.backends.items()
        for side in SIDES
        if name in backends[side]
    ]
    return replace(registry, backends={entry.name: entry for entry in entries})
