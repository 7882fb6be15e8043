"""Numbers among the fields of a config."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from attnbench.types.errors import BadFile
from attnbench.types.words import clean

Fields = MutableMapping[str, Any]


def same(fields: Fields, *names: str) -> int | None:
    """Return the number that fields of the same meaning have; None where none is there."""
    found = {name: number for name in names if (number := first_of(fields, name))}
    if len(set(found.values())) > 1:
        raise BadFile(f"{' and '.join(f'{n} = {v}' for n, v in found.items())} contradict each other")
    return next(iter(found.values()), None)


def needed(fields: Fields, *names: str) -> int:
    """Return the first of the fields that is there, which one must be."""
    number = first_of(fields, *names)
    if number is None:
        raise BadFile(f"it has no {' or '.join(names)}")
    return number


def first_of(fields: Fields, *names: str) -> int | None:
    """Return the first of the fields that is there; null and 0 mean that it is not."""
    for name in names:
        value = fields.get(name)
        if value is None or value == 0:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadFile(f"{name} = {clean(repr(value))}: give a whole number above 0")
        return value
    return None


def positive(name: str, value: object) -> float:
    """Return a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadFile(f"{name} = {clean(repr(value))}: give a number above 0")
    return float(value)
