"""The registry: everything that plugins bring, by name, with the plugin that brought it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from attnbench.plugins.calling import strict, tell
from attnbench.plugins.kinds import KINDS, Kind
from attnbench.plugins.load import Loaded, load, unusable
from attnbench.plugins.sources import installed, named, wanted
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.compared import sided
from attnbench.types.encoding import Encoding, encoding_name, make_encodings_known, names_encoding
from attnbench.types.errors import BadInput
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Source, Suite, VerdictRule
from attnbench.types.fleet import Executor
from attnbench.types.operation import Operation, make_known
from attnbench.types.rule import Rule
from attnbench.types.storage import Storage, make_storages_known
from attnbench.types.words import FORMATS, unknown_name

T = TypeVar(
    "T",
    Rule,
    Backend,
    Operation,
    Storage,
    Encoding,
    Suite,
    VerdictRule,
    Metric,
    Reporter,
    EnvironmentFact,
    Executor,
)


Refuses = Callable[[object], str | None]
"""Returns why a higher room can't use a record, as a column's name that it has itself; None where it can."""

SLOW_S = 1.0
"""CPU time from which a plugin counts as slow to load. attnbench's own take 0.1 s, and several times that on
a busy machine; torch takes 1.3 s."""


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A record and the plugin that brought it. side: of a live comparison; "" elsewhere."""

    record: T
    source: Source
    side: str = ""

    @property
    def name(self) -> str:
        """The name in a run: the record's own, with the side where there is one."""
        return sided(self.record.name, self.side)


@dataclass(frozen=True)
class Registry:
    """Everything that plugins bring, by name: one field for each of :data:`attnbench.plugins.kinds.KINDS`.

    plugins: those that were loaded. faults: what failed to load, one sentence each. notes: hints for authors
    of plugins, which ``check --plugin`` and ``plugins`` print.
    """

    rules: dict[str, Entry[Rule]]
    backends: dict[str, Entry[Backend]]
    suites: dict[str, Entry[Suite]]
    verdict_rules: dict[str, Entry[VerdictRule]]
    plugins: tuple[Source, ...]
    faults: tuple[str, ...]
    operations: dict[str, Entry[Operation]] = field(default_factory=dict)
    storages: dict[str, Entry[Storage]] = field(default_factory=dict)
    encodings: dict[str, Entry[Encoding]] = field(default_factory=dict)
    metrics: dict[str, Entry[Metric]] = field(default_factory=dict)
    reporters: dict[str, Entry[Reporter]] = field(default_factory=dict)
    environment_facts: dict[str, Entry[EnvironmentFact]] = field(default_factory=dict)
    executors: dict[str, Entry[Executor]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rule(self, name: str) -> Rule:
        """Return the rule of a name; raises :class:`BadInput` with the nearest name."""
        return self._find("rule", self.rules, name).record

    @property
    def scoring_rules(self) -> dict[str, Rule]:
        """The rules that score pairs of queries and keys, by name; others are of recurrences and writers."""
        return {name: entry.record for name, entry in self.rules.items() if entry.record.kind == "scores"}

    def backend(self, name: str) -> Backend:
        """Return the backend of a name; raises :class:`BadInput` with the nearest name."""
        return self._find("backend", self.backends, name).record

    def suite(self, name: str) -> Suite:
        """Return the suite of a name; raises :class:`BadInput` with the nearest name."""
        return self._find("suite", self.suites, name).record

    def executor(self, name: str) -> Executor:
        """Return the executor of a name; raises :class:`BadInput` with the nearest name."""
        return self._find("executor", self.executors, name).record

    def reporter(self, name: str) -> Entry[Reporter]:
        """Return the reporter of a name; raises :class:`BadInput` with the nearest format."""
        return self._find("format", self.reporters, name, FORMATS)

    def brought_by(self, source: Source) -> dict[str, list[str]]:
        """Return the names of what a plugin brings, by the word of ``attnbench list`` for each kind."""
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


def load_wanted(
    words: Iterable[str] = (), more: Iterable[Source] = (), refuses: Refuses = lambda record: None
) -> Registry:
    """Load the installed plugins, and the files and modules that words name.

    words: as --plugin takes them. more: further sources. refuses: see :data:`Refuses`. Environment variables
    also choose and add plugins (:mod:`attnbench.plugins.sources`).

    Raises:
        BadInput: a word names no plugin, or a named plugin has a fault. With ``ATTNBENCH_STRICT_PLUGINS`` a
            fault of any plugin is an error, and its own exceptions are let through.
    """
    raising = strict()
    kept, chosen, warnings = wanted(words)
    chosen += [source for source in more if source not in chosen]
    registry = load_registry([*kept, *chosen], raising=raising, refuses=refuses)
    asked = [fault for fault in registry.faults if any(str(source) in fault for source in chosen)]
    if asked or (raising and registry.faults):
        raise BadInput(f"plugin {(asked or registry.faults)[0]}")
    return replace(registry, faults=(*warnings, *registry.faults))


def load_and_tell(words: Iterable[str] = (), refuses: Refuses = lambda record: None) -> Registry:
    """Do as :func:`load_wanted`; print one line on stderr for each fault."""
    registry = load_wanted(words, refuses=refuses)
    for sentence in registry.faults:
        tell(sentence)
    return registry


def load_registry(
    sources: Iterable[Source] | None = None, *, raising: bool = False, refuses: Refuses = lambda record: None
) -> Registry:
    """Load plugins and gather what they bring. sources: None for all that are installed.

    Where two plugins bring the same name, the first one keeps it, and a fault names both. raising: let
    exceptions of plugins through. refuses: see :data:`Refuses`.
    """
    loaded = [load(source, raising=raising) for source in (installed() if sources is None else sources)]
    faults = [fault for plugin in loaded for fault in plugin.faults]
    gathered = {kind.field: _gather(kind, loaded, faults, refuses) for kind in KINDS}
    make_known(entry.record for entry in gathered["operations"].values())
    make_storages_known(entry.record for entry in gathered["storages"].values())
    make_encodings_known(entry.record for entry in gathered["encodings"].values())
    notes = [
        f"{plugin.source}: {'imports torch, and ' if plugin.with_torch else ''}takes {plugin.cpu_s:.1f} s to "
        "load in every command: import heavy libraries where they are used, in a backend inside prepare"
        for plugin in loaded
        if plugin.with_torch or plugin.cpu_s >= SLOW_S
    ]
    sources = tuple(plugin.source for plugin in loaded)
    return Registry(**gathered, plugins=sources, faults=tuple(faults), notes=tuple(notes))


def _gather(kind: Kind, loaded: list[Loaded], faults: list[str], refuses: Refuses) -> dict[str, Entry[Any]]:
    entries: dict[str, Entry[Any]] = {}
    for plugin in loaded:
        for record in plugin.records.get(kind.type, ()):
            if (reason := refuses(record)) is not None:
                faults.append(f"{plugin.source}: {kind.hook} gave {unusable(kind, reason)}")
                continue
            clash = next(_clashes(kind, record, entries.values()), None)
            if clash is None:
                entries[record.name] = Entry(record, plugin.source)
            else:
                what, other = clash
                again = " twice" if other == plugin.source else f", as {other} does"
                faults.append(f"{plugin.source}: brings {kind.word} {what}{again}; this one is ignored")
    return entries


def _clashes(kind: Kind, record: Any, others: Iterable[Entry[Any]]) -> Iterator[tuple[str, Source]]:
    """Yield the value that a record may not share with another one, and the plugin of that one."""
    for other in others:
        if other.record.name == record.name:
            yield repr(record.name), other.source
        for attribute in kind.unlike:
            value = getattr(record, attribute)
            if value == getattr(other.record, attribute):
                yield f"with the {attribute} {value!r}", other.source


def storage_source(registry: Registry, case: Case) -> Source | None:
    """Return the plugin that brings the storage of a case; None for one that every process knows."""
    entry = registry.storages.get(case.storage)
    return entry.source if entry is not None and case.batch else None


def encoding_source(registry: Registry, case: Case) -> Source | None:
    """Return the plugin that brings the encoding of a case; None for one that every process knows."""
    entry = registry.encodings.get(encoding_name(case))
    return entry.source if entry is not None and names_encoding(case) else None


def named_by(words: Iterable[str], entries: Mapping[str, Entry[T]]) -> tuple[str, ...]:
    """Return the names of those records that plugins bring which words name, as --plugin takes them."""
    modules = {named(word).module for word in words}
    return tuple(name for name, entry in entries.items() if entry.source.module in modules)
