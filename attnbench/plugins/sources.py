"""Where plugins come from, which are wanted, and how the module of one is imported."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distributions, packages_distributions, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from stat import S_ISREG
from types import ModuleType

from attnbench.plugins.commands import CHOSEN, chosen_words, is_chosen, named_by_commands
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.words import clean


def file_digest(content: bytes) -> str:
    """The first digits of the SHA-256 of a plugin's file: its version."""
    return hashlib.sha256(content).hexdigest()[:12]


def refuse_changed(source: Source) -> None:
    """Raise :class:`ImportError` where a file is not what it was when its plugin was first loaded."""
    if file_digest(Path(source.path).read_bytes()) != source.version:
        raise ImportError(f"{source.distribution} has changed since it was loaded first: begin anew")


def import_plugin(source: Source) -> ModuleType:
    """The module of a plugin, imported once in a process. Raises whatever it raises."""
    if not source.path:
        return importlib.import_module(source.module)
    if source.module in sys.modules:
        return sys.modules[source.module]
    folder = str(Path(source.path).parent)
    if folder not in sys.path:
        # Last: what lies beside the file can be imported, and stands before no library.
        sys.path.append(folder)
    refuse_changed(source)
    spec = spec_from_file_location(source.module, source.path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{Path(source.path).name} is no file of Python code")
    module = module_from_spec(spec)
    sys.modules[source.module] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[source.module]
        raise
    return module


GROUP = "attnbench"

NAMED = "ATTNBENCH_PLUGINS"
"""The variable of the environment that names more plugins, files or modules, as --plugin does."""


def installed() -> Iterator[Source]:
    """Every entry point in the group ``attnbench``, attnbench's own first, then by distribution.

    A distribution that is found twice on the path counts once, as Python itself would import it.
    """
    seen: set[str] = set()
    found: list[Source] = []
    for distribution in distributions():
        name = distribution.name
        if name in seen:
            continue
        seen.add(name)
        found += [
            Source(point.name, point.value, name, distribution.version)
            for point in distribution.entry_points
            if point.group == GROUP
        ]
    yield from sorted(found, key=lambda s: (s.distribution != "attnbench", s.distribution, s.name))


def chosen(sources: Iterable[Source]) -> tuple[list[Source], list[str]]:
    """Of installed plugins those that ``ATTNBENCH_LOAD_PLUGINS`` names, and its words that name none."""
    everything, words = list(sources), chosen_words()
    kept = [source for source in everything if is_chosen(source.distribution, source.name, words)]
    known = {name for source in everything for name in (source.distribution, source.name)}
    unknown = [word for word in words or () if word not in known]
    # Distributions that bring commands alone are no sources.
    return kept, [word for word in unknown if word not in {*named_by_commands()}]


def wanted(words: Iterable[str] = ()) -> tuple[list[Source], list[Source], list[str]]:
    """Installed plugins to load; those that words and the environment name; and what else is to be said.

    Raises:
        BadInput: a word names no plugin.
    """
    kept, unknown = chosen(installed())
    more = list(dict.fromkeys(named(word) for word in (*named_in_environment(), *words)))
    said = [f"{CHOSEN} names {word!r}, and no plugin that is installed is called so" for word in unknown]
    return kept, [source for source in more if source.module not in {s.module for s in kept}], said


def named_in_environment() -> tuple[str, ...]:
    """The files and modules that ``ATTNBENCH_PLUGINS`` names, separated as the folders of PATH are."""
    return tuple(word for word in os.environ.get(NAMED, "").split(os.pathsep) if word.strip())


def named(word: str) -> Source:
    """The plugin that a word names: a file where it ends in ``.py`` or has a slash, a module else.

    Raises:
        BadInput: no such file, or no word that could name a module.
    """
    word = word.strip()
    if word.endswith(".py") or os.sep in word:
        return _file(Path(word))
    if (meant := _file_meant(word)) is not None:
        raise BadInput(f"no plugin {word!r} that can be imported; did you mean the file {meant!r}?")
    if not all(part.isidentifier() for part in word.split(".")):
        raise BadInput(f"no plugin {word!r}: name a file, as my_kernel.py, or a module, as package.module")
    return _module(word)


def _file_meant(word: str) -> str | None:
    """A file that a word probably means, without its ending or its folder; None where there is none."""
    if word.isidentifier() and _is_importable(word):
        return None
    meant = (f"{word}.py", f"{os.curdir}{os.sep}{word}")
    return next((file for file in meant if Path(file).is_file()), None)


def _is_importable(name: str) -> bool:
    try:
        return name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _file(path: Path) -> Source:
    place = path.expanduser()
    try:
        # A pipe would be waited for, a device read for ever.
        if not S_ISREG(place.stat().st_mode):
            also = "name its file, or the module that it is" if place.is_dir() else "name a file"
            raise BadInput(f"no plugin {str(path)!r}: that is no file; {also}")
        content = place.read_bytes()
    except OSError as failure:
        raise BadInput(f"no plugin {str(path)!r}: {failure.strerror}") from None
    digest = file_digest(content)
    # The module's name has the digest, so that no file stands in the way of a library or of its namesake.
    stem = "".join(c if c.isalnum() else "_" for c in path.stem)
    # What stands in messages, tables and files is clean whatever the file is called.
    return Source(clean(path.stem), f"{stem}_{digest}", clean(path.name), digest, str(place.resolve()))


def _module(name: str) -> Source:
    top = name.partition(".")[0]
    for distribution in packages_distributions().get(top, ()):
        try:
            return Source(name, name, distribution, version(distribution))
        except PackageNotFoundError:
            continue
    return Source(name, name, top, "uninstalled")
