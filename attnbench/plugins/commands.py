"""Commands that installed distributions add, found without importing them.

An entry point of the group ``attnbench.commands`` is one: ``NAME = "module:click_command"``. Listing them is
part of ``attnbench --help``, so nothing is imported here but what is needed where there are any.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from attnbench.plugins.choosing import chosen_words, is_chosen

GROUP = "attnbench.commands"


@dataclass(frozen=True)
class PluginCommand:
    """A command that a plugin brings. module: ``module:attribute``. summary: that of its distribution."""

    name: str
    module: str
    distribution: str
    version: str
    summary: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"


@dataclass(frozen=True)
class PluginCommands:
    """All that are installed, by name, and in one sentence each which can't be used."""

    by_name: dict[str, PluginCommand]
    faults: tuple[str, ...] = ()


def plugin_commands(own: Collection[str]) -> PluginCommands:
    """The commands of plugins, by distribution and name. own: attnbench's, whose place nobody takes."""
    if not _is_named_anywhere():
        return PluginCommands({})
    from attnbench.types.names import NAME, NAMES_ARE

    found: dict[str, PluginCommand] = {}
    faults = []
    for command in _installed():
        if not NAME.fullmatch(command.name):
            faults.append(f"{command}: the command {command.name!r}: {NAMES_ARE}")
        elif command.name in own:
            faults.append(f"{command}: a command {command.name!r} is attnbench's own, which is used")
        elif command.name in found:
            faults.append(
                f"two plugins bring a command {command.name!r}: {found[command.name]} and {command}; "
                "the first is used"
            )
        else:
            found[command.name] = command
    return PluginCommands(found, tuple(faults))


def _is_named_anywhere() -> bool:
    """Whether any distribution on the path may have commands: importlib.metadata takes 10 ms to import."""
    for folder in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info")) and _names_group(entry.path):
                    return True
    return False


def _names_group(folder: str) -> bool:
    try:
        with open(f"{folder}/entry_points.txt", "rb") as file:  # noqa: PTH123
            return GROUP.encode() in file.read()
    except OSError:
        return False


def _installed() -> list[PluginCommand]:
    """Every command; a distribution that is there twice counts once, as Python would import it."""
    from importlib.metadata import distributions

    words, seen = chosen_words(), set[str]()
    found = []
    for distribution in distributions():
        if distribution.name in seen:
            continue
        seen.add(distribution.name)
        points = distribution.entry_points.select(group=GROUP)
        found += [
            PluginCommand(
                point.name,
                point.value,
                distribution.name,
                distribution.version,
                " ".join(str(distribution.metadata["Summary"] or "").split()),
            )
            for point in points
            if is_chosen(distribution.name, point.name, words)
        ]
    return sorted(found, key=lambda command: (command.distribution, command.name))


def named_by_commands() -> Iterator[str]:
    """The words by which ``ATTNBENCH_LOAD_PLUGINS`` chooses commands that are installed."""
    if _is_named_anywhere():
        for command in _installed():
            yield command.distribution
            yield command.name
