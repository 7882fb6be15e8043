"""Finding the backend that an author names (by name, file, module or Backend) in other processes too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from attnbench.plugins.registry import Registry, load_registry, load_wanted
from attnbench.plugins.sources import named, wanted
from attnbench.types.backend import Backend
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.words import unknown_name

STAND_IN_FOR = "stand_in_for_"

_STAND_IN = '''"""Stands in for a plugin: brings a backend that is a name in another module."""
from attnbench import hookimpl
from attnbench.testing.locating import home_again
home = home_again({module!r}, {file!r}, {path!r}, {backend!r})
@hookimpl
def attnbench_backends():
    return [home.{name}]
if {rules!r}:
    attnbench_rules = home.attnbench_rules
'''

_importing: list[str] = []
"""Backends whose modules are being imported for a check. A check that starts meanwhile is in such a file."""


@dataclass(frozen=True)
class Found:
    """Backends by name, in a registry that has them. rules: those that the plugin brings itself."""

    registry: Registry
    backends: tuple[str, ...]
    rules: tuple[str, ...] = ()

    def only(self) -> str:
        """Return the name of the only backend. Raises :class:`BadInput` where there are more or none."""
        if len(self.backends) != 1:
            names = ", ".join(self.backends) or "none"
            raise BadInput(f"the plugin brings {len(self.backends)} backends ({names}): name one of them")
        return self.backends[0]


@contextmanager
def located(what: str | Path | Backend) -> Iterator[Found]:
    """Find what to check: the name of a backend, the file or module of a plugin, or a Backend.

    A plugin stands for all its backends and rules. A Backend need not belong to a plugin, but it must be a
    name at the top level of a module with a file. A file written for that lasts as long as the context.

    Raises:
        BadInput: there is no such thing, or other processes can't find it.
    """
    if isinstance(what, Backend):
        with _of_object(what) as found:
            yield found
        return
    word = str(what).strip()
    registry = load_wanted()
    if word in registry.backends:
        yield Found(registry, (word,))
    elif word.endswith(".py") or os.sep in word or "." in word:
        yield brought_by([word], load_wanted([word]))
    else:
        raise BadInput(f"{unknown_name('backend', word, registry.backends)} Name a file as my_kernel.py.")


def brought_by(words: Sequence[str], registry: Registry) -> Found:
    """Return all backends and rules of the plugins that words name, in a registry that has them.

    Raises:
        BadInput: they bring neither.
    """
    modules = {named(word).module for word in words}
    backends = tuple(n for n, entry in registry.backends.items() if entry.source.module in modules)
    rules = tuple(n for n, entry in registry.rules.items() if entry.source.module in modules)
    if not backends and not rules:
        raise BadInput(
            f"{', '.join(words)} brings no backend and no rule: add a function attnbench_backends() with "
            "@attnbench.hookimpl that returns a list of attnbench.Backend"
        )
    return Found(registry, backends, rules)


@contextmanager
def _of_object(backend: Backend) -> Iterator[Found]:
    if backend.name in _importing:
        raise BadInput(
            f"check_backend({backend.name!r}) is called while its own file is imported: put the call under "
            "if __name__ == '__main__': or into a test"
        )
    registry = load_wanted()
    entry = registry.backends.get(backend.name)
    if entry is not None and entry.record == backend:
        yield Found(registry, (backend.name,))
        return
    home, name = _home(backend)
    hook = getattr(home, "attnbench_rules", None)
    new = hook is not None and any(rule.name not in registry.rules for rule in hook())
    with TemporaryDirectory(prefix="attnbench-") as folder:
        file = Path(folder) / f"{STAND_IN_FOR}{home.__name__.rpartition('.')[2].strip('_')}.py"
        text = _STAND_IN.format(
            module=home.__name__, file=str(Path(str(home.__file__)).resolve()),
            path=[entry for entry in sys.path if entry], backend=backend.name, name=name, rules=new,
        )  # fmt: skip
        file.write_text(text, encoding="utf-8")
        try:
            yield _loaded(named(str(file)), backend, Path(str(home.__file__)).name)
        finally:
            sys.path[:] = [entry for entry in sys.path if entry != folder]


def _loaded(source: Source, backend: Backend, home: str) -> Found:
    kept, more, _ = wanted()
    # First, so that it takes precedence over an installed one of the same name.
    registry = load_registry([source, *kept, *more])
    entry = registry.backends.get(backend.name)
    if entry is None or entry.source != source:
        faults = [fault for fault in registry.faults if str(source) in fault]
        why = faults[0].partition(": ")[2] if faults else f"it brings no {backend.name!r} there"
        raise BadInput(f"the backend {backend.name!r} of {home} can't be loaded again: {why}")
    return Found(registry, (backend.name,))


def home_again(module: str, file: str, path: Sequence[str], backend: str) -> ModuleType:
    """Import the module of a backend in this process, by its name or else from its file.

    path: of the process in which the author named the backend, added to this one's.
    """
    sys.path += [entry for entry in path if entry not in sys.path]
    _importing.append(backend)
    try:
        if module != "__main__":
            try:
                home = import_module(module)
            except ImportError:
                home = None
            if home is not None and Path(str(home.__file__)).resolve() == Path(file):
                return home
        name = f"{Path(file).stem}_again"
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        home = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(home)
        return home
    finally:
        _importing.remove(backend)


def _home(backend: Backend) -> tuple[ModuleType, str]:
    """Return the module in which a backend is a name, and that name."""
    functions = (backend.prepare, backend.supports, backend.available, backend.weights)
    modules = [_module_of(function) for function in functions if function is not None]
    # Functions that a Backend has by default come from attnbench.
    names = dict.fromkeys(name for name in modules if not name.startswith("attnbench.types"))
    likely = [sys.modules[name] for name in names if name in sys.modules]
    for module in [*likely, *list(sys.modules.values())]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is backend and name.isidentifier() and getattr(module, "__file__", None):
                return module, name
    raise BadInput(
        f"other processes can't find the backend {backend.name!r}: it is not a name at the top level of a "
        f"file (its functions come from {', '.join(names)}). Write MY_BACKEND = Backend(...) at the top "
        "level of a module and pass that, or pass the path of a file with the hook attnbench_backends. In a "
        "notebook, write the cell to a file first (%%writefile my_kernel.py)"
    )


def _module_of(function: object) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", ""))
