"""Commands that installed distributions add, found without importing them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

CHOSEN = "ATTNBENCH_LOAD_PLUGINS"
"""The variable of the environment that says which installed plugins are loaded; see :func:`chosen_words`."""


def chosen_words() -> list[str] | None:
    """The words of ``ATTNBENCH_LOAD_PLUGINS``, separated by commas; None where it isn't set.

    Each is the name of a distribution or of an entry point. Without the variable all plugins are wanted, with
    an empty one none; attnbench's own always are.
    """
    wanted = os.environ.get(CHOSEN)
    return None if wanted is None else [word.strip() for word in wanted.split(",") if word.strip()]


def is_chosen(distribution: str, name: str, words: Collection[str] | None) -> bool:
    """Whether a plugin is wanted, by its distribution and the name of its entry point."""
    return words is None or distribution == "attnbench" or bool({distribution, name} & {*words})


GROUP = "attnbench.commands"
_POINTS = "entry_points.txt"


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
    commands = _installed(chosen_words())
    if not commands:
        return PluginCommands({})
    from attnbench.types.words import NAME, NAMES_ARE

    found: dict[str, PluginCommand] = {}
    faults = []
    for command in commands:
        if not NAME.fullmatch(command.name):
            faults.append(f"{command}: the command {command.name!r}: {NAMES_ARE}")
        elif command.name in own:
            faults.append(f"{command}: a command {command.name!r} is attnbench's own, which is used")
        elif command.name in found:
            faults.append(
                f"{command}: brings a command {command.name!r}, as {found[command.name]} does; "
                "the first is used"
            )
        else:
            found[command.name] = command
    return PluginCommands(found, tuple(faults))


def named_by_commands() -> Iterator[str]:
    """The words by which ``ATTNBENCH_LOAD_PLUGINS`` chooses commands that are installed."""
    for command in _installed(None):
        yield command.distribution
        yield command.name


def _installed(words: Collection[str] | None) -> list[PluginCommand]:
    """The commands that words choose; of a distribution that is there twice, those of the first."""
    seen, found = set[str](), []
    for folder in _folders():
        told = _told(folder)
        name, version = told.get("name", Path(folder).stem), told.get("version", "unknown")
        if name in seen:
            continue
        seen.add(name)
        found += [
            PluginCommand(point, module, name, version, told.get("summary", ""))
            for point, module in _points(folder)
            if is_chosen(name, point, words)
        ]
    return sorted(found, key=lambda command: (command.distribution, command.name))


def _folders() -> Iterator[str]:
    """What distributions on the path say of themselves, of those that may bring commands.

    Read here and not by importlib.metadata, which takes longer to import than ``--help`` takes in all.
    """
    for place in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError), os.scandir(place or ".") as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info")) and GROUP in _text(entry.path, _POINTS):
                    yield entry.path


def _points(folder: str) -> Iterator[tuple[str, str]]:
    """Names and values; the file is one of configparser's, see the specification of entry points.

    https://packaging.python.org/en/latest/specifications/entry-points/#file-format
    """
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names have upper and lower case
    with contextlib.suppress(Error):
        parser.read_string(_text(folder, _POINTS))
    if parser.has_section(GROUP):
        yield from parser.items(GROUP)


def _told(folder: str) -> dict[str, str]:
    """Name, version and summary from the head of a distribution's metadata."""
    head = (_text(folder, "METADATA") or _text(folder, "PKG-INFO")).partition("\n\n")[0]
    lines = [line.partition(":") for line in head.splitlines() if not line[:1].isspace()]
    return {name.lower(): " ".join(value.split()) for name, colon, value in lines if colon}


def _text(folder: str, file: str) -> str:
    try:
        return Path(folder, file).read_text("utf-8", "replace")
    except OSError:
        return ""
