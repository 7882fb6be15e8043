"""Backends that two commits cannot have changed: all files that their packages hold are the same."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from filecmp import cmp
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from attnbench.ipc.process import is_code_of
from attnbench.live.facts import SideFacts
from attnbench.live.sides import Side, TwoSides
from attnbench.plugins.registry import Entry, Registry
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.compared import BASE, HEAD

_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_ALWAYS = ("sitecustomize", "usercustomize", "torch", "numpy")
"""Modules that workers import, from the tree if it has them."""

_BY_NAME = frozenset({"__import__", "builtins", "eval", "exec", "importlib", "pkgutil", "runpy"})
"""A source that uses one of these names may import any module of the tree."""

_NO_CODE = frozenset({"__pycache__", ".git", "site-packages", "dist-packages"})


def unchanged(sides: TwoSides, registry: Registry, cases: Iterable[Case]) -> frozenset[str]:
    """Return the backends that behave alike on both sides, because all that they run has the same bytes.

    A backend's code is in its top-level package, in those of the rules and operations that it computes in
    ``cases``, in attnbench, and in every package of the repository that one of these imports. Every file in
    these folders is compared, since a module can read any file beside it. A module without a package counts
    with the folder that it lies in. A source that may import modules by name counts with all of the tree's.

    The same bytes can still behave differently. So a backend counts as changed if the sides have different
    interpreters, where any installed package may differ, or different versions, or if its package is in
    neither tree.

    Two ways are not seen: files outside of these folders, and an installed library, other than the plugin's
    own package, that imports from the repository by itself.
    """
    base, head = sides.base, sides.head
    of_base, of_head = sides.facts[base.label], sides.facts[head.label]
    if base.python != head.python or of_base.versions != of_head.versions:
        return frozenset()
    codes = _Code(base, of_base), _Code(head, of_head)

    @cache
    def alike(package: str) -> bool:
        before, after = (code.files_of(package) for code in codes)
        return (
            bool(before)
            and before.keys() == after.keys()
            and all(
                path == after[key] or cmp(path, after[key], shallow=False) for key, path in before.items()
            )
        )

    used = {(case.operation, case.rule) for case in cases}
    found = sides.candidates()
    return frozenset(
        name
        for name in of_base.backends.keys() & of_head.backends.keys()
        if found[name][BASE].source.module == found[name][HEAD].source.module
        and all(map(alike, _packages(found[name][HEAD], registry, used)))
    )


def _packages(entry: Entry[Backend], registry: Registry, used: Iterable[tuple[str, str]]) -> set[str]:
    """Return the top-level packages of a backend, of the rules and operations that it computes, and ours."""
    backend, modules = entry.record, {"attnbench", entry.source.module}
    for operation, rule in used:
        if operation in backend.operations and (backend.rules is None or rule in backend.rules):
            modules |= {registry.operations[operation].source.module, registry.rules[rule].source.module}
    return {module.partition(".")[0] for module in modules}


class _Code:
    """The files of one side, by top-level package."""

    def __init__(self, side: Side, facts: SideFacts) -> None:
        self._tree = side.tree
        self._roots = [Path(path) for path in side.paths if side.tree and is_code_of(path, side.tree)]
        self._outside: dict[str, Path] = {}
        for module, file in (*facts.files.items(), ("attnbench", facts.attnbench)):
            if file and not (side.tree and is_code_of(file, side.tree)):
                place = Path(file)
                depth = module.count(".") + place.name.startswith("__init__.")
                self._outside[module.partition(".")[0]] = place.parents[depth - 1] if depth else place

    def files_of(self, package: str) -> dict[str, Path]:
        """Return all files of a package and of those that it imports, by name; none where it isn't found."""
        found: dict[str, Path] = {}
        seen: set[str] = set()
        waiting = [*_ALWAYS, package]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            files = list(self._files(name))
            if name == package and not files:
                return {}
            for path in files:
                key = self._key(path)
                if key in found:
                    continue
                found[key] = path
                # attnbench imports nothing from the repository but plugins, which are compared.
                if path.suffix == ".py" and name != "attnbench":
                    imported = _imported(path.read_bytes())
                    if imported & _BY_NAME:
                        return found | {self._key(each): each for each in self._everything()}
                    waiting += imported
        return found

    def _everything(self) -> Iterator[Path]:
        for root in self._roots:
            yield from _all_files(root)

    def _files(self, name: str) -> Iterator[Path]:
        """Yield the files of a top-level package; of a module without a package those of its folder."""
        for root in self._roots:
            yield from _all_files(root / name)
            if any((root / f"{name}{suffix}").is_file() for suffix in _SUFFIXES):
                yield from _all_files(root)
        outside = self._outside.get(name)
        if outside is not None and outside.is_file():
            yield outside
        elif outside is not None:
            yield from _all_files(outside)

    def _key(self, path: Path) -> str:
        """Return the place of a file in its tree; the whole path where it is in none."""
        inside = self._tree and path.is_relative_to(self._tree)
        return str(path.relative_to(self._tree) if inside else path)


def _all_files(folder: Path) -> Iterator[Path]:
    """Yield every file in a folder, also behind links, but for bytecode and what is installed there."""
    entered: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        entered.add(os.path.realpath(here))
        folders[:] = [
            name
            for name in folders
            if name not in _NO_CODE and os.path.realpath(Path(here, name)) not in entered
        ]
        yield from (path for path in (Path(here, name) for name in names) if path.is_file())


@cache
def _imported(source: bytes) -> frozenset[str]:
    """Return the top-level modules that a source imports, and those of ``_BY_NAME`` that it uses."""
    names: set[str] = set()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return _BY_NAME
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Name) and node.id in _BY_NAME:
            names.add(node.id)
    return frozenset(names)
