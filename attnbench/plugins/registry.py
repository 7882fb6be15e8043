"""All plugins together: every rule, backend, suite and verdict rule by name, with who brought it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from attnbench.plugins.loading import Loaded, load
from attnbench.plugins.sources import installed, wanted
from attnbench.types.backend import Backend
from attnbench.types.errors import BadInput
from attnbench.types.names import unknown_name
from attnbench.types.rule import Rule
from attnbench.types.sides import sided
from attnbench.types.source import Source
from attnbench.types.suite import Suite
from attnbench.types.verdict import VerdictRule

T = TypeVar("T", Rule, Backend, Suite, VerdictRule)


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A record and the plugin that brought it. side: of a live comparison, whose code it is; "" elsewhere."""

    record: T
    source: Source
    side: str = ""

    @property
    def name(self) -> str:
        """What it's called as a contender: on a side, the backend's name with it."""
        return sided(self.record.name, self.side)


@dataclass(frozen=True)
class Registry:
    """Everything plugins bring, by name. ``faults`` says in one sentence each what failed to load."""

    rules: dict[str, Entry[Rule]]
    backends: dict[str, Entry[Backend]]
    suites: dict[str, Entry[Suite]]
    verdict_rules: dict[str, Entry[VerdictRule]]
    plugins: tuple[Source, ...]
    faults: tuple[str, ...]

    def rule(self, name: str) -> Rule:
        """The rule of that name; raises :class:`BadInput` with the nearest name."""
        return self._find("rule", self.rules, name)

    def backend(self, name: str) -> Backend:
        """The backend of that name; raises :class:`BadInput` with the nearest name."""
        return self._find("backend", self.backends, name)

    def suite(self, name: str) -> Suite:
        """The suite of that name; raises :class:`BadInput` with the nearest name."""
        return self._find("suite", self.suites, name)

    def _find(self, kind: str, entries: dict[str, Entry[T]], name: str) -> T:
        if name not in entries:
            failed = " ".join(f"A plugin failed to load: {fault}." for fault in self.faults)
            raise BadInput(f"{unknown_name(kind, name, entries)} {failed}".rstrip())
        return entries[name].record


STRICT = "ATTNBENCH_STRICT_PLUGINS"
"""The variable of the environment that has a plugin's failure raised where it happens."""


def load_wanted(words: Iterable[str] = (), more: Iterable[Source] = ()) -> Registry:
    """Load the plugins that a user wants: those installed, and files and modules that words name.

    words: as --plugin takes them. more: sources of whoever calls, named ones too. See
    :mod:`attnbench.plugins.sources` for the variables of the environment that choose and add.

    Raises:
        BadInput: a word names no plugin, or one that was named has a fault; with ``ATTNBENCH_STRICT_PLUGINS``
            any has, unless what it raises itself is raised.
    """
    strict = bool(os.environ.get(STRICT))
    kept, named, said = wanted(words)
    named += [source for source in more if source not in named]
    registry = load_registry([*kept, *named], strict=strict)
    asked = [fault for fault in registry.faults if any(str(source) in fault for source in named)]
    if asked or (strict and registry.faults):
        raise BadInput(f"plugin {(asked or registry.faults)[0]}")
    return replace(registry, faults=(*said, *registry.faults))


def load_registry(sources: Iterable[Source] | None = None, *, strict: bool = False) -> Registry:
    """Load plugins (all that are installed unless told) and gather what they bring.

    Where two plugins bring the same name, the first keeps it and the clash is a fault naming both.
    strict: let through what a plugin raises.
    """
    loaded = [load(source, strict=strict) for source in (installed() if sources is None else sources)]
    faults = [fault for plugin in loaded for fault in plugin.faults]
    return Registry(
        rules=_gather("rule", loaded, lambda p: p.rules, faults),
        backends=_gather("backend", loaded, lambda p: p.backends, faults),
        suites=_gather("suite", loaded, lambda p: p.suites, faults),
        verdict_rules=_gather("verdict rule", loaded, lambda p: p.verdict_rules, faults),
        plugins=tuple(p.source for p in loaded),
        faults=tuple(faults),
    )


def _gather(
    kind: str, loaded: list[Loaded], records: Callable[[Loaded], tuple[T, ...]], faults: list[str]
) -> dict[str, Entry[T]]:
    entries: dict[str, Entry[T]] = {}
    for plugin in loaded:
        for record in records(plugin):
            if record.name in entries:
                faults.append(
                    f"two plugins bring a {kind} {record.name!r}: {entries[record.name].source} and "
                    f"{plugin.source}; the first is used"
                )
            else:
                entries[record.name] = Entry(record, plugin.source)
    return entries
