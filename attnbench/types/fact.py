"""Facts of the machine or its software that a plugin knows how to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FactValue = str | int | float | bool | None


@dataclass(frozen=True)
class EnvironmentFact:
    """A fact that every run file states, and that ``attnbench compare`` shows where two sides differ in it.

    name: what it's called. summary: what it says, one line.
    read: gives it, None where it isn't known. It is called once in each run, by the process that starts it,
    before anything is measured; so it must be quick and import nothing heavy.
    """

    name: str
    summary: str
    read: Callable[[], FactValue]
