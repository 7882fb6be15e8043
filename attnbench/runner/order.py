"""What a run is asked to do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnbench.plugins.registry import Registry
from attnbench.types.case import Case


def command_line() -> tuple[str, ...]:
    """The command that this process was started with, as people write it: its program has no folder."""
    program = Path(sys.argv[0]).name
    return ("attnbench" if program == "__main__.py" else program, *sys.argv[1:])


@dataclass(frozen=True)
class Order:
    """What a run is asked to do.

    backends: in this order. named: those asked for by name, whose refusal is an error to the user.
    compiled_on: ids of the cases on which compiling backends run unless named; None for all.
    command: argv, for the manifest. asked: by case (its id), the backends that are asked for it where that is
    not all of them; a run that is resumed asks all.
    """

    cases: tuple[Case, ...]
    backends: tuple[str, ...]
    named: tuple[str, ...] = ()
    compiled_on: frozenset[str] | None = None
    command: tuple[str, ...] = ()
    asked: Mapping[str, tuple[str, ...]] | None = None

    def names(self, case: str) -> tuple[str, ...]:
        """The backends that are asked for a case, by its id."""
        return self.backends if self.asked is None else self.asked.get(case, ())


def left_out(order: Order, registry: Registry, case: str) -> frozenset[str]:
    """Backends that are left out of a case (its id), though they'd run, because they compile for seconds."""
    if order.compiled_on is None or case in order.compiled_on:
        return frozenset()
    return frozenset(
        name for name in order.backends if registry.backends[name].record.compiles and name not in order.named
    )
