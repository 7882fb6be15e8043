"""Sources of plugins: entry points, files and modules; choosing among them, and importing one."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.abc import SourceLoader
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from stat import S_ISREG
from types import ModuleType

from attnbench.plugins.commands import CHOSEN, chosen_words, is_chosen, named_by_commands
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.files import parse_toml
from attnbench.types.words import clean, printable


def file_digest(content: bytes) -> str:
    """Return the first digits of the SHA-256 of a plugin's file, which serve as its version."""
    return hashlib.sha256(content).hexdigest()[:12]


def import_plugin(source: Source) -> ModuleType:
    """Import the module of a plugin, once in a process. Raises what the import raises.

    A file is read once and its bytecode is never cached: every process of a run has the same code or raises.
    """
    if not source.path:
        return importlib.import_module(source.module)
    known = sys.modules.get(source.module)
    # A copy of the file elsewhere has the same name.
    if known is not None and known.__file__ == source.path:
        return known
    folder = str(Path(source.path).parent)
    if folder not in sys.path:
        # Last, so that files beside the plugin can be imported and hide no library.
        sys.path.append(folder)
    content = Path(source.path).read_bytes()
    if file_digest(content) != source.version:
        raise ImportError(f"{source.distribution} has changed since it was first loaded: start again")
    spec = spec_from_file_location(source.module, source.path)
    if spec is None or not isinstance(spec.loader, SourceLoader):
        raise ImportError(f"{Path(source.path).name} is not a file of Python code")
    module = module_from_spec(spec)
    sys.modules[source.module] = module
    try:
        exec(spec.loader.source_to_code(content, source.path), vars(module))
    except BaseException:
        del sys.modules[source.module]
        raise
    return module


GROUP = "attnbench"

NAMED = "ATTNBENCH_PLUGINS"
"""The environment variable that names more plugins as --plugin does, separated like the folders of PATH."""


def installed() -> Iterator[Source]:
    """Yield every entry point of the group ``attnbench``: attnbench's own first, others by distribution.

    The first of two distributions with one name on the path counts, as for Python itself.
    """
    found = [
        Source(*map(printable, (point.name, point.value, point.dist.name, point.dist.version)))
        for point in entry_points(group=GROUP)
        if point.dist is not None
    ]
    yield from sorted(found, key=lambda s: (s.distribution != "attnbench", s.distribution, s.name))


def wanted(words: Iterable[str] = ()) -> tuple[list[Source], list[Source], list[str]]:
    """Return installed plugins to load, those that words or the environment name, and warnings.

    Raises:
        BadInput: a word names no plugin.
    """
    everything, chosen = list(installed()), chosen_words()
    kept = [source for source in everything if is_chosen(source.distribution, source.name, chosen)]
    known = {name for source in everything for name in (source.distribution, source.name)}
    unknown = [word for word in chosen or () if word not in known]
    # A distribution that brings only commands is not among the sources.
    unknown = [word for word in unknown if word not in {*named_by_commands()}]
    warnings = [f"{CHOSEN} names {word!r}, but no installed plugin has this name" for word in unknown]
    in_environment = [word for word in os.environ.get(NAMED, "").split(os.pathsep) if word.strip()]
    more = dict.fromkeys(named(word) for word in (*in_environment, *words))
    modules = {source.module for source in kept}
    return kept, [source for source in more if source.module not in modules], warnings


def named(word: str) -> Source:
    """Return the plugin that a word names: a file where it ends in ``.py`` or has a slash, else a module.

    Raises:
        BadInput: there is no such file, or the word can't name a module.
    """
    word = word.strip()
    if word.endswith(".py") or os.sep in word:
        return _file(Path(word))
    if (meant := _file_meant(word)) is not None:
        raise BadInput(f"no plugin {word!r} that can be imported; did you mean the file {meant!r}?")
    if not all(part.isidentifier() for part in word.split(".")):
        raise BadInput(f"no plugin {word!r}: name a file (my_kernel.py) or a module (package.module)")
    return _module(word)


def _file_meant(word: str) -> str | None:
    """Return the file that a word without ending or folder probably means; None where there is none."""
    if word.isidentifier() and (word in sys.modules or find_spec(word) is not None):
        return None
    meant = (f"{word}.py", f"{os.curdir}{os.sep}{word}")
    return next((file for file in meant if Path(file).is_file()), None)


def _file(path: Path) -> Source:
    place = path.expanduser()
    try:
        # Reading a pipe would block; reading a device might never end.
        if not S_ISREG(place.stat().st_mode):
            raise BadInput(f"no plugin {str(path)!r}: not a file; name a file, or a module")
        content = place.read_bytes()
        str(place.resolve()).encode()
    except OSError as failure:
        raise BadInput(f"no plugin {str(path)!r}: {failure.strerror}") from None
    except UnicodeEncodeError:
        raise BadInput(f"no plugin {str(path)!r}: its path is not UTF-8: rename it") from None
    digest = file_digest(content)
    # The digest in the module's name avoids clashes with libraries and with other files of the same name.
    stem = "".join(c if c.isalnum() else "_" for c in path.stem)
    # Names are cleaned because they appear in messages, tables and files.
    return Source(clean(path.stem), f"{stem}_{digest}", clean(path.name), digest, str(place.resolve()))


def _module(name: str) -> Source:
    top = name.partition(".")[0]
    for distribution in packages_distributions().get(top, ()):
        try:
            return Source(name, name, distribution, version(distribution))
        except PackageNotFoundError:
            continue
    return Source(name, name, top, "uninstalled")


def uninstalled_project(folder: Path) -> str:
    """Return the name of the project of a folder, if it declares plugins and is not installed; else ""."""
    try:
        project = parse_toml((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
        name = project["name"]
        if not project["entry-points"][GROUP]:
            return ""
        version(name)
    except PackageNotFoundError:
        return str(name)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return ""
