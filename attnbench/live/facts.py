"""The answer of an interpreter about what it has: ``python -m attnbench.live.facts``, a question on stdin.

attnbench.live.sides asks each side of a live comparison before anything is measured.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import attnbench
from attnbench.ipc.messages import protocol_fingerprint
from attnbench.ipc.process import forbidden, is_code_of, set_import_path, stdout_for_answers
from attnbench.plugins.libraries import libraries
from attnbench.plugins.registry import Entry, Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.types.backend import Backend
from attnbench.types.extensions import Source

LIBRARIES = ("torch", "numpy", "triton", "msgspec")


class Question(Struct, frozen=True):
    """The question to a side.

    sources: the plugins to load; None for those that are installed there. own: top-level modules that must
    come from the folder ``tree``.
    """

    sources: tuple[Source, ...] | None
    own: tuple[str, ...]
    tree: str


class Declared(Struct, frozen=True):
    """A backend as a side declares it, without its functions.

    source: its plugin on that side. values: by field of ``Backend``. weighs: whether it returns weights.
    """

    source: Source
    values: dict[str, Any]
    weighs: bool

    def entry(self, side: str) -> Entry[Backend]:
        """Return it as a candidate of a side; only workers have its functions."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self.values.items()
        }
        weights = _elsewhere if self.weighs else None
        return Entry(Backend(prepare=_elsewhere, weights=weights, **values), self.source, side)


_FUNCTIONS = ("prepare", "supports", "available", "weights")


def _declared(entry: Entry[Backend]) -> Declared:
    record = entry.record
    names = [field.name for field in fields(record) if field.name not in _FUNCTIONS]
    values = {name: getattr(record, name) for name in names}
    return Declared(entry.source, values, record.weights is not None)


def _elsewhere(setup: object) -> Any:
    raise AssertionError("only a worker calls a backend")


class SideFacts(Struct, frozen=True):
    """The answer of a side.

    protocol: the fingerprint of its workers' messages. attnbench: the file of the package. versions: of
    python, libraries (those that plugins need too) and plugins' distributions, by name, if present. files: by
    module of a plugin, its file. backends: by name. elsewhere: by module of a plugin that does not come from
    its tree and was not loaded, the place that it would come from, "" for none. strays: files that were
    imported from the user's tree. faults: of plugins.
    """

    protocol: str
    attnbench: str
    versions: dict[str, str]
    files: dict[str, str]
    backends: dict[str, Declared]
    elsewhere: dict[str, str]
    strays: tuple[str, ...]
    faults: tuple[str, ...]


def facts(question: Question) -> SideFacts:
    """Load the plugins of a question and describe them. Changes the import path of this process."""
    set_import_path()
    sources = tuple(installed()) if question.sources is None else question.sources
    elsewhere = {
        source.module: place
        for source in sources
        if source.module.partition(".")[0] in question.own
        and (place := _misplaced(source.module, question.tree)) is not None
    }
    registry = load_registry(source for source in sources if source.module not in elsewhere)
    return SideFacts(
        protocol=protocol_fingerprint(),
        attnbench=str(attnbench.__file__),
        versions=_versions(registry),
        files={source.module: _file(source.module) for source in registry.plugins},
        backends={name: _declared(entry) for name, entry in registry.backends.items()},
        elsewhere=elsewhere,
        strays=tuple(_strays()),
        faults=registry.faults,
    )


def _misplaced(module: str, tree: str) -> str | None:
    """Return the place that a module would come from, "" for none; None if it comes from the tree.

    Packages are looked up before their modules, so that nothing in the wrong place is imported.
    """
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        try:
            spec = find_spec(".".join(names[:depth]))
        except Exception:
            # The package around it does not import; loading the plugin will tell the reason.
            return None
        if spec is None:
            return ""
        file = [spec.origin] if spec.has_location and spec.origin else []
        places = file or list(spec.submodule_search_locations or ())
        if not any(is_code_of(place, tree) for place in places):
            return ", ".join(places)
    return None


def _versions(registry: Registry) -> dict[str, str]:
    found = {"python": platform.python_version(), "attnbench": attnbench.__version__}
    for name in dict.fromkeys((*LIBRARIES, *(source.distribution for source in registry.plugins))):
        try:
            found.setdefault(name, version(name))
        except PackageNotFoundError:
            continue
    needed = libraries(
        [source.distribution for source in registry.plugins if source.distribution != "attnbench"],
        [module for entry in registry.backends.values() for module in entry.record.requires],
    )
    return needed | found


def _file(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__file__", None) or "")


def _strays() -> Iterable[str]:
    tree = forbidden()
    if tree is not None:
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            # torch.ops says '_ops.py', which is no file here.
            if isinstance(file, str) and Path(file).exists() and is_code_of(file, tree):
                yield file


def main() -> None:
    """Read the question from stdin, and write nothing but the answer to stdout."""
    out = stdout_for_answers()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    out.write(msgspec.json.encode(facts(question)))


if __name__ == "__main__":
    main()
