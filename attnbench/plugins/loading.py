"""Loading one plugin and reading what it brings; nothing it does wrong reaches the others."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pluggy

from attnbench import hookspecs
from attnbench.plugins.importing import import_plugin
from attnbench.plugins.kinds import KINDS, Kind, fault
from attnbench.plugins.tracing import traced
from attnbench.types.source import Source
from attnbench.types.words import clean, one_line

T = TypeVar("T")


@dataclass(frozen=True)
class Loaded:
    """What one plugin brings, by type of record, and what went wrong with it, one sentence a fault."""

    source: Source
    records: dict[type, tuple[Any, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = field(default=())

    def of(self, type_: type[T]) -> tuple[T, ...]:
        """The records of a type, as :class:`~attnbench.types.backend.Backend`."""
        return self.records.get(type_, ())


def load(source: Source, *, raising: bool = False) -> Loaded:
    """Import a plugin and call its hooks, each guarded.

    An import or a hook that raises (``SystemExit`` included) becomes a fault, as does a hook name
    that doesn't exist and a record of the wrong type; what works is kept. raising: let that through.
    """
    # What a plugin prints while it loads must not stand among the data on stdout.
    with contextlib.redirect_stdout(sys.stderr):
        return _load(source, raising)


def _load(source: Source, raising: bool) -> Loaded:
    try:
        with traced(f"importing {source}"):
            module = import_plugin(source)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if raising:
            raise
        return Loaded(source, faults=(f"{source}: does not import: {one_line(failure)}",))
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    faults: list[str] = []
    try:
        manager.register(module, name=source.name)
        manager.check_pending()
    except pluggy.PluginValidationError as failure:
        faults.append(f"{source}: {one_line(failure)}")
    records = {kind.type: tuple(_records(manager, kind, source, faults, raising)) for kind in KINDS}
    return Loaded(source, records, tuple(faults))


def _records(
    manager: pluggy.PluginManager, kind: Kind, source: Source, faults: list[str], raising: bool
) -> Iterable[Any]:
    kept: list[Any] = []
    for implementation in getattr(manager.hook, kind.hook).get_hookimpls():
        try:
            with traced(f"{kind.hook} of {source}"):
                for record in implementation.function():
                    if (wrong := _fault(kind, record)) is None:
                        kept.append(record)
                    else:
                        faults.append(f"{source}: {kind.hook} gave {wrong}")
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            if raising:
                raise
            faults.append(f"{source}: {kind.hook} raised {one_line(failure)}")
    return kept


def _fault(kind: Kind, record: Any) -> str | None:
    named = kind.type.__name__
    if not isinstance(record, kind.type):
        return f"{clean(repr(record) if isinstance(record, str) else record)}, which is no {named}"
    wrong = fault(record)
    return None if wrong is None else f"a {named} that can't be used: {wrong}"
