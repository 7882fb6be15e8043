"""Backends that two commits cannot have changed: all code that their calls run is the same on both sides."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from attnbench.ipc.process import is_code_of
from attnbench.live.facts import Facts
from attnbench.live.sides import Side, TwoSides
from attnbench.plugins.registry import Entry, Registry
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.compared import BASE, HEAD
from attnbench.types.operation import Operation
from attnbench.types.rule import Rule

_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_AT_START = ("sitecustomize", "usercustomize")
"""Modules that every interpreter imports if its path has them."""

_BUILT_IN = ("attnbench.backends", "attnbench.operations", "attnbench.rules", "attnbench.suites")
"""Packages of attnbench that are plugins. The rest of attnbench takes part in every measurement."""

_HIDDEN = frozenset({
    "__file__", "__path__", "__spec__", "__loader__", "__package__", "__import__", "exec", "eval", "runpy",
    "importlib", "importlib_resources", "inspect", "lazy_loader", "pkg_resources", "pkgutil",
})  # fmt: skip
"""A module that uses one of these names may import or read any file beside it."""


def unchanged(sides: TwoSides, registry: Registry, cases: Iterable[Case]) -> frozenset[str]:
    """Return the backends that behave alike on both sides, because all that they run has the same bytes.

    These files are compared: the backend's module; the modules of the rules and operations that the backend
    computes in ``cases``; every module that one of these imports from the repository, also inside functions,
    with the packages around it; attnbench itself, without its built-in plugins.

    The same bytes can still behave differently. So a backend counts as changed in these cases:

    - the sides have different interpreters, where any installed package may differ, or different versions;
    - a module in the repository can import or read files that its import statements do not name, for example
      data files beside it (``__file__``), and the sides are not one and the same commit;
    - the package of a module looks at its own name, and any file in that package differs;
    - a module is in neither tree, or cannot be read.

    One way is not seen: an installed library, other than the plugin's own package, that imports from the
    repository by itself.
    """
    base, head = sides.base, sides.head
    of_base, of_head = sides.facts[base.label], sides.facts[head.label]
    if base.python != head.python or of_base.versions != of_head.versions:
        return frozenset()
    codes = _Code(base, of_base), _Code(head, of_head)
    one_commit = base.commit == head.commit != "" and not (base.uncommitted or head.uncommitted)
    if codes[0].attnbench() != codes[1].attnbench():
        return frozenset()

    @cache
    def alike(module: str) -> bool:
        if one_commit:
            return True
        before, after = (code.files_of(module) for code in codes)
        return before is not None and before == after

    used = {(case.operation, case.rule) for case in cases}
    found = sides.candidates()
    return frozenset(
        name
        for name in of_base.backends.keys() & of_head.backends.keys()
        if found[name][BASE].source.module == found[name][HEAD].source.module
        and all(map(alike, _modules(found[name][HEAD], registry, used)))
    )


def _modules(entry: Entry[Backend], registry: Registry, used: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the modules of a backend, and of the rules and operations that it computes."""
    yield _home(entry)
    for operation, rule in used:
        backend = entry.record
        if operation in backend.operations and (backend.rules is None or rule in backend.rules):
            yield _home(registry.operations[operation])
            yield _home(registry.rules[rule])


def _home(entry: Entry[Backend] | Entry[Rule] | Entry[Operation]) -> str:
    """Return the module of a record: of a built-in one the module that defines it, else the plugin's."""
    package = entry.source.module
    if package in _BUILT_IN:
        for name, module in list(sys.modules.items()):
            if name.startswith(f"{package}.") and any(one is entry.record for one in vars(module).values()):
                return name
    return package


class _Code:
    """The files of one side, by module."""

    def __init__(self, side: Side, facts: Facts) -> None:
        self._side, self._facts = side, facts
        self._roots = [Path(path) for path in side.paths if side.tree and is_code_of(path, side.tree)]
        self._outside: dict[str, Path] = {}
        for module, file in facts.files.items():
            if file and not (side.tree and is_code_of(file, side.tree)):
                depth = module.count(".") + Path(file).name.startswith("__init__.")
                self._outside[module.partition(".")[0]] = Path(file).parents[depth]

    def attnbench(self) -> Mapping[str, bytes] | str:
        """Return attnbench's files without its built-in plugins; outside of the tree, its place."""
        file = self._facts.attnbench
        if not (self._side.tree and is_code_of(file, self._side.tree)):
            return file
        package = Path(file).parent
        built_in = [package / name.partition(".")[2] for name in _BUILT_IN]
        return {
            self._key(path): path.read_bytes()
            for path in _all_files(package)
            if not any(path.is_relative_to(folder) for folder in built_in)
        }

    def files_of(self, module: str) -> dict[str, bytes] | None:
        """Return the content of all files that a module needs, by name.

        None where it isn't found, or where a file of the tree may need others that it does not import.
        """
        found: dict[str, bytes] = {}
        seen: set[str] = set()
        waiting = [module, *_AT_START]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for package, path in self._places(name):
                key = self._key(path)
                if key in found:
                    continue
                found[key] = path.read_bytes()
                if path.suffix != ".py":
                    continue
                imported, names = _read(found[key], package)
                waiting += imported
                if names & _HIDDEN and not Path(key).is_absolute():
                    return None
                if "__name__" in names and path.name == "__init__.py" and package not in _BUILT_IN:
                    for other in _all_files(path.parent):
                        if other.suffix == ".py":
                            inner = other.relative_to(path.parent).with_suffix("").parts
                            waiting.append(".".join([package, *inner]))
                        else:
                            found[self._key(other)] = other.read_bytes()
        return None if next(self._places(module), None) is None else found

    def _places(self, name: str) -> Iterator[tuple[str, Path]]:
        """Yield the files of a module and of the packages around it, each with the package that it is in."""
        parts = name.split(".")
        first = 1
        if parts[0] == "attnbench":
            if ".".join(parts[:2]) not in _BUILT_IN:
                return
            # attnbench itself is compared as a whole.
            first = 2
        outside = self._outside.get(parts[0])
        for root in [*self._roots, *([outside] if outside else [])]:
            for count in range(first, len(parts) + 1):
                place = root.joinpath(*parts[:count])
                for suffix in _SUFFIXES:
                    if (place / f"__init__{suffix}").is_file():
                        yield ".".join(parts[:count]), place / f"__init__{suffix}"
                    if place.with_name(place.name + suffix).is_file():
                        yield ".".join(parts[: count - 1]), place.with_name(place.name + suffix)

    def _key(self, path: Path) -> str:
        """Return the place of a file in its tree; the whole path where it is in none."""
        tree = self._side.tree
        return str(path.relative_to(tree)) if tree and is_code_of(path, tree) else str(path)


def _all_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


@cache
def _read(source: bytes, package: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the modules that a source may import, and the names that it uses."""
    imported, names = set(), set()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset(), _HIDDEN
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")[: -(node.level - 1) or None] if node.level else []
            origin = ".".join([*around, *([node.module] if node.module else [])])
            # Each name may be a module of the package.
            imported |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return frozenset(imported), frozenset(names | {name.partition(".")[0] for name in imported})
