"""Commands that installed distributions add, found without importing the distributions."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, entry_points

from attnbench.types.words import NAME, NAMES_ARE, clean

CHOSEN = "ATTNBENCH_LOAD_PLUGINS"
"""The environment variable that chooses installed plugins; see :func:`chosen_words`."""


def chosen_words() -> list[str] | None:
    """Return the words of ``ATTNBENCH_LOAD_PLUGINS``, separated by commas; None where it is not set.

    Each word names a distribution or an entry point. Without the variable all plugins are loaded, with an
    empty one none besides attnbench's own.
    """
    wanted = os.environ.get(CHOSEN)
    return None if wanted is None else [word.strip() for word in wanted.split(",") if word.strip()]


def is_chosen(distribution: str, name: str, words: Collection[str] | None) -> bool:
    """Return whether words choose a plugin by its distribution or by the name of its entry point."""
    return words is None or distribution == "attnbench" or bool({distribution, name} & {*words})


GROUP = "attnbench.commands"


@dataclass(frozen=True)
class PluginCommand:
    """A command that a plugin brings. module: ``module:attribute``. summary: of its distribution."""

    name: str
    module: str
    distribution: str
    version: str
    summary: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"

    def load(self) -> object:
        """Import what the entry point names."""
        return EntryPoint(self.name, self.module, GROUP).load()


@dataclass(frozen=True)
class PluginCommands:
    """The installed commands by name. faults: one sentence for each command that can't be used."""

    by_name: dict[str, PluginCommand]
    faults: tuple[str, ...] = ()


def plugin_commands(own: Collection[str]) -> PluginCommands:
    """Find the commands of plugins. own: names of attnbench's commands, which no plugin may take."""
    found: dict[str, PluginCommand] = {}
    faults = []
    for command in _installed(chosen_words()):
        if not NAME.fullmatch(command.name):
            faults.append(f"{command}: the command {command.name!r}: {NAMES_ARE}")
        elif command.name in own:
            faults.append(f"{command}: attnbench itself has a command {command.name!r}, which is used")
        elif command.name in found:
            faults.append(
                f"{command}: brings a command {command.name!r}, as {found[command.name]} does; "
                "this one is ignored"
            )
        else:
            found[command.name] = command
    return PluginCommands(found, tuple(faults))


def named_by_commands() -> Iterator[str]:
    """Yield the words by which ``ATTNBENCH_LOAD_PLUGINS`` can choose installed commands."""
    for command in _installed(None):
        yield command.distribution
        yield command.name


def _installed(words: Collection[str] | None) -> list[PluginCommand]:
    """Return the commands that words choose, by distribution."""
    found = [
        PluginCommand(clean(point.name), clean(point.value), *facts_of(point.dist))
        for point in entry_points(group=GROUP)
    ]
    chosen = [command for command in found if is_chosen(command.distribution, command.name, words)]
    return sorted(chosen, key=lambda command: (command.distribution, command.name))


def facts_of(distribution: Distribution | None) -> tuple[str, str, str]:
    """Return the name, the version and the summary of a distribution."""
    facts = {} if distribution is None else distribution.metadata.json
    name, version, summary = (clean(str(facts.get(key, ""))) for key in ("name", "version", "summary"))
    return name, version, summary
