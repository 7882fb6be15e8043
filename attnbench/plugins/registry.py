"""All plugins together: what they bring, by name, with the plugin that brought it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from attnbench.plugins.calling import strict, tell
from attnbench.plugins.kinds import KINDS, Kind
from attnbench.plugins.load import Loaded, load
from attnbench.plugins.sources import installed, wanted
from attnbench.types.backend import Backend
from attnbench.types.columns import FORMATS
from attnbench.types.compared import SIDES, sided
from attnbench.types.errors import BadInput
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Source, Suite, VerdictRule
from attnbench.types.operation import Operation, make_known
from attnbench.types.rule import Rule
from attnbench.types.words import unknown_name

T = TypeVar("T", Rule, Backend, Operation, Suite, VerdictRule, Metric, Reporter, EnvironmentFact)


SLOW_S = 0.5
"""CPU time from which a plugin is told to be slow to load; attnbench's own take 0.1 s, torch takes 1.3 s."""


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
    """Everything plugins bring, by name: a field for each of :data:`attnbench.plugins.kinds.KINDS`.

    plugins: those that were loaded. faults: in one sentence each what failed to load; notes: what else their
    authors should know.
    """

    rules: dict[str, Entry[Rule]]
    backends: dict[str, Entry[Backend]]
    suites: dict[str, Entry[Suite]]
    verdict_rules: dict[str, Entry[VerdictRule]]
    plugins: tuple[Source, ...]
    faults: tuple[str, ...]
    operations: dict[str, Entry[Operation]] = field(default_factory=dict)
    metrics: dict[str, Entry[Metric]] = field(default_factory=dict)
    reporters: dict[str, Entry[Reporter]] = field(default_factory=dict)
    environment_facts: dict[str, Entry[EnvironmentFact]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rule(self, name: str) -> Rule:
        """The rule of that name; raises :class:`BadInput` with the nearest name."""
        return self._find("rule", self.rules, name).record

    def backend(self, name: str) -> Backend:
        """The backend of that name; raises :class:`BadInput` with the nearest name."""
        return self._find("backend", self.backends, name).record

    def suite(self, name: str) -> Suite:
        """The suite of that name; raises :class:`BadInput` with the nearest name."""
        return self._find("suite", self.suites, name).record

    def reporter(self, name: str) -> Entry[Reporter]:
        """The reporter of that name and who brings it; raises :class:`BadInput` with the nearest format."""
        return self._find("format", self.reporters, name, FORMATS)

    def brought_by(self, source: Source) -> dict[str, list[str]]:
        """The names of what a plugin brings, by the word that lists their kind; [] where it's none."""
        return {
            kind.listed: [name for name, entry in getattr(self, kind.field).items() if entry.source == source]
            for kind in KINDS
        }

    def _find(
        self, kind: str, entries: dict[str, Entry[T]], name: str, others: Collection[str] = ()
    ) -> Entry[T]:
        if name not in entries:
            failed = " ".join(f"A plugin failed to load: {fault}." for fault in self.faults)
            raise BadInput(f"{unknown_name(kind, name, (*others, *entries))} {failed}".rstrip())
        return entries[name]


def load_wanted(words: Iterable[str] = (), more: Iterable[Source] = ()) -> Registry:
    """Load the plugins that a user wants: those installed, and files and modules that words name.

    words: as --plugin takes them. more: sources of whoever calls, named ones too. See
    :mod:`attnbench.plugins.sources` for the variables of the environment that choose and add.

    Raises:
        BadInput: a word names no plugin, or one that was named has a fault; with ``ATTNBENCH_STRICT_PLUGINS``
            any has, unless what it raises itself is raised.
    """
    raising = strict()
    kept, named, said = wanted(words)
    named += [source for source in more if source not in named]
    registry = load_registry([*kept, *named], raising=raising)
    asked = [fault for fault in registry.faults if any(str(source) in fault for source in named)]
    if asked or (raising and registry.faults):
        raise BadInput(f"plugin {(asked or registry.faults)[0]}")
    return replace(registry, faults=(*said, *registry.faults))


def load_and_tell(words: Iterable[str] = ()) -> Registry:
    """As :func:`load_wanted`; one line on stderr for each fault, and for each plugin that is slow to load."""
    registry = load_wanted(words)
    for said in (*registry.faults, *registry.notes):
        tell(said)
    return registry


def load_registry(sources: Iterable[Source] | None = None, *, raising: bool = False) -> Registry:
    """Load plugins (all that are installed unless told) and gather what they bring.

    Where two plugins bring the same name, the first keeps it and the clash is a fault naming both.
    raising: let through what a plugin raises.
    """
    loaded = [load(source, raising=raising) for source in (installed() if sources is None else sources)]
    faults = [fault for plugin in loaded for fault in plugin.faults]
    gathered = {kind.field: _gather(kind, loaded, faults) for kind in KINDS}
    make_known(entry.record for entry in gathered["operations"].values())
    notes = [
        f"{plugin.source}: takes {plugin.cpu_s:.1f} s to load, at every command: import what is heavy where "
        "it is used, of a backend in prepare"
        for plugin in loaded
        if plugin.cpu_s >= SLOW_S
    ]
    sources = tuple(plugin.source for plugin in loaded)
    return Registry(**gathered, plugins=sources, faults=tuple(faults), notes=tuple(notes))


def _gather(kind: Kind, loaded: list[Loaded], faults: list[str]) -> dict[str, Entry[Any]]:
    entries: dict[str, Entry[Any]] = {}
    for plugin in loaded:
        for record in plugin.records.get(kind.type, ()):
            clash = next(_clashes(kind, record, entries.values()), None)
            if clash is None:
                entries[record.name] = Entry(record, plugin.source)
            else:
                what, other = clash
                again = " twice" if other == plugin.source else f", as {other} does"
                faults.append(f"{plugin.source}: brings {kind.word} {what}{again}; the first is used")
    return entries


def _clashes(kind: Kind, record: Any, others: Iterable[Entry[Any]]) -> Iterator[tuple[str, Source]]:
    """In what a record is like another and may not be, and whose that one is."""
    for other in others:
        if other.record.name == record.name:
            yield repr(record.name), other.source
        for attribute in kind.unlike:
            value = getattr(record, attribute)
            if value == getattr(other.record, attribute):
                yield f"with the {attribute} {value!r}", other.source


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
