"""From what an author names (a name, file, module or Backend) to plugins that can be loaded elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from attnbench.plugins.registry import Registry, load_registry, load_wanted
from attnbench.plugins.sources import named, wanted
from attnbench.types.backend import Backend
from attnbench.types.errors import BadInput
from attnbench.types.names import unknown_name

_UNDER_WAY: list[str] = []
"""Backends whose files are being read: whoever asks meanwhile is one of those files."""

STAND_IN_FOR = "stand_in_for_"

STAND_IN = '''"""Stands in for a plugin: brings a backend that is a name in {home}."""
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from attnbench import hookimpl
for entry in {path!r}:
    if entry not in sys.path:
        sys.path.append(entry)
if {file!r}:
    spec = spec_from_file_location({module!r}, {file!r})
    home = module_from_spec(spec)
    sys.modules[{module!r}] = home
    spec.loader.exec_module(home)
else:
    home = import_module({module!r})
@hookimpl
def attnbench_backends():
    return [home.{name}]
if {rules!r}:
    attnbench_rules = home.attnbench_rules
'''


@dataclass(frozen=True)
class Found:
    """Backends by name, in a registry that has them; rules: those that the plugin brings itself."""

    registry: Registry
    backends: tuple[str, ...]
    rules: tuple[str, ...] = ()


@contextmanager
def located(what: str | Path | Backend) -> Iterator[Found]:
    """What to check: the name of a backend, the file or module of a plugin, or a Backend.

    Of a plugin all its backends, and its rules. A Backend need belong to no plugin, but has to be a name in a
    module that other processes can import. What is written for that lasts as long as the context.

    Raises:
        BadInput: there is no such thing, or it can't be found from elsewhere, in one sentence.
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
    """All backends and rules of the plugins that words name, in a registry that has them.

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
    if backend.name in _UNDER_WAY:
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
    _UNDER_WAY.append(backend.name)
    try:
        with TemporaryDirectory(prefix="attnbench-") as folder:
            file = Path(folder) / f"{STAND_IN_FOR}{home.__name__.rpartition('.')[2].strip('_')}.py"
            file.write_text(_stand_in(home, name, registry), encoding="utf-8")
            found = _loaded(file, backend, home)
            try:
                yield found
            finally:
                sys.path[:] = [entry for entry in sys.path if entry != folder]
    finally:
        _UNDER_WAY.remove(backend.name)


def _loaded(file: Path, backend: Backend, home: ModuleType) -> Found:
    source = named(str(file))
    kept, more, _ = wanted()
    # First, so that it stands before an installed one of the same name.
    registry = load_registry([source, *kept, *more])
    entry = registry.backends.get(backend.name)
    if entry is None or entry.source != source:
        faults = [fault for fault in registry.faults if str(source) in fault]
        why = faults[0].partition(": ")[2] if faults else f"{backend.name!r} is not what it brings there"
        raise BadInput(f"the backend {backend.name!r} of {_where(home)} can't be loaded again: {why}")
    return Found(registry, (backend.name,))


def _home(backend: Backend) -> tuple[ModuleType, str]:
    """The module in which a backend is a name, and that name."""
    found = [sys.modules[name] for name in _modules_of(backend) if name in sys.modules]
    for module in [*found, *list(sys.modules.values())]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is backend and name.isidentifier():
                if getattr(module, "__file__", None) is None:
                    break
                return module, name
    raise BadInput(
        f"the backend {backend.name!r} is no name at the top of a file, so the processes that judge it "
        "can't find "
        f"it (its functions are of {', '.join(_modules_of(backend))}): write MY_BACKEND = Backend(...) "
        "at the top "
        "of a module and pass that, or pass the path of a file with the hook attnbench_backends; what "
        "is defined "
        "in a notebook or at a prompt has to be written to a file (%%writefile my_kernel.py)"
    )


def _modules_of(backend: Backend) -> list[str]:
    functions: list[Callable[..., Any] | None] = [
        backend.prepare, backend.supports, backend.available, backend.weights,
    ]  # fmt: skip
    names = []
    for function in functions:
        while isinstance(function, partial):
            function = function.func
        name = getattr(function, "__module__", None)
        if name and not name.startswith("attnbench.types"):
            names.append(name)
    return list(dict.fromkeys(names))


def _stand_in(home: ModuleType, name: str, registry: Registry) -> str:
    file = "" if _importable_elsewhere(home) else str(Path(str(home.__file__)).resolve())
    module = f"{Path(file).stem}_again" if file else home.__name__
    hook = getattr(home, "attnbench_rules", None)
    new = hook is not None and any(rule.name not in registry.rules for rule in hook())
    return STAND_IN.format(
        home=_where(home), path=[entry for entry in sys.path if entry], file=file, module=module, name=name,
        rules=new,
    )  # fmt: skip


def _importable_elsewhere(module: ModuleType) -> bool:
    """Whether its name leads to it in a process that has the same path."""
    spec = getattr(module, "__spec__", None)
    if module.__name__ == "__main__" or spec is None:
        return False
    from importlib.util import find_spec

    top = module.__name__.partition(".")[0]
    try:
        found = find_spec(top) if top not in sys.modules else sys.modules[top].__spec__
    except (ImportError, ValueError):
        return False
    folders = {str(Path(entry or ".").resolve()) for entry in sys.path}
    if found is None or found.origin is None:
        return False
    origin = Path(found.origin).resolve()
    return str(origin.parent) in folders or str(origin.parent.parent) in folders


def _where(module: ModuleType) -> str:
    return Path(str(module.__file__)).name
