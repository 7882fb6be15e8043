"""Sizes: whole numbers that a storage or an operation needs, and a case may choose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Chosen = tuple[tuple[str, int], ...]
"""Sizes with other values than their defaults, in the order of their names."""


@dataclass(frozen=True)
class Size:
    """A whole number that a case may choose: ``page`` in ``paged:32``, ``top`` in ``H8-L128-D64-top32``."""

    name: str
    """In ids and suites: ``name=value`` of a storage, of its only size the value alone; letters alone for an
    operation, whose ids have the name and the value."""
    meaning: str
    """One line."""
    default: int
    """Where a case chooses none."""
    least: int = 1
    most: int = 2**31 - 1
    other: int = 0
    """Another value for tests of backends; 0 for twice the default."""


def wrong_size(whose: str, declared: Iterable[Size], chosen: Chosen) -> str | None:
    """Return why chosen sizes make no sense, or None.

    whose: the storage or the operation in words.
    """
    known = {size.name: size for size in declared}
    names = [name for name, _ in chosen]
    if names != sorted(set(names)):
        return f"the sizes {', '.join(names)}: give each once, in the order of their names"
    for name, value in chosen:
        if name not in known:
            has = f"it has {' and '.join(known)}" if known else "it has none"
            return f"{whose} has no size {name!r}; {has}"
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{name} = {value!r}: give a whole number"
        if not known[name].least <= value <= known[name].most:
            return f"{name} = {value}: give {known[name].least} to {known[name].most}"
    if any(value == known[name].default for name, value in chosen):
        return f"sizes = {chosen!r}: leave out those with their defaults"
    return None
