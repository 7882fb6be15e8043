"""Commands that installed distributions add, found without importing the distributions."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

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
_POINTS = "entry_points.txt"


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
    """Return the commands that words choose. The first of two distributions with one name counts."""
    seen, found = set[str](), []
    for folder in _folders():
        facts = _metadata(folder)
        name, version = facts.get("name", Path(folder).stem), facts.get("version", "unknown")
        if name in seen:
            continue
        seen.add(name)
        found += [
            PluginCommand(point, module, name, version, facts.get("summary", ""))
            for point, module in _points(folder)
            if is_chosen(name, point, words)
        ]
    return sorted(found, key=lambda command: (command.distribution, command.name))


def _folders() -> Iterator[str]:
    """Yield the metadata folders on ``sys.path`` of distributions that may bring commands.

    importlib.metadata would find them too, but its import takes longer than all of ``--help``.
    """
    for place in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError), os.scandir(place or ".") as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info")) and GROUP in _text(entry.path, _POINTS):
                    yield entry.path


def _points(folder: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of a distribution's entry points, in the format of configparser.

    https://packaging.python.org/en/latest/specifications/entry-points/#file-format
    """
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    with contextlib.suppress(Error):
        parser.read_string(_text(folder, _POINTS))
    if parser.has_section(GROUP):
        yield from ((clean(name), clean(value)) for name, value in parser.items(GROUP))


def _metadata(folder: str) -> dict[str, str]:
    """Return the head of a distribution's metadata: name, version, summary and more."""
    head = (_text(folder, "METADATA") or _text(folder, "PKG-INFO")).partition("\n\n")[0]
    lines = [line.partition(":") for line in head.splitlines() if not line[:1].isspace()]
    return {name.lower(): clean(value) for name, colon, value in lines if colon}


def _text(folder: str, file: str) -> str:
    try:
        return Path(folder, file).read_text("utf-8", "replace")
    except OSError:
        return ""
