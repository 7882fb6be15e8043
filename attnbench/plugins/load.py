"""Loading one plugin: importing it and calling its hooks. Its failures do not reach other plugins."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from attnbench import hookspecs
from attnbench.plugins.calling import traced, undisturbed
from attnbench.plugins.kinds import KINDS, Kind, fault
from attnbench.plugins.sources import import_plugin
from attnbench.types.extensions import Source
from attnbench.types.words import clean, nearest, one_line

T = TypeVar("T")
Hook = Callable[[], object]


@dataclass(frozen=True)
class Loaded:
    """One plugin after loading.

    records: by their type. faults: what went wrong, one sentence each. cpu_s: CPU time of the loading thread.
    with_torch: whether it was the first to import torch, which no command needs before a backend is prepared.
    """

    source: Source
    records: dict[type, tuple[Any, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = field(default=())
    cpu_s: float = 0.0
    with_torch: bool = False

    def of(self, type_: type[T]) -> tuple[T, ...]:
        """Return the records of one type, such as :class:`~attnbench.types.backend.Backend`."""
        return self.records.get(type_, ())


def load(source: Source, *, raising: bool = False) -> Loaded:
    """Import a plugin and call its hooks, each guarded.

    Faults are an import or a hook that raises (``SystemExit`` included), an unknown hook name, and a record
    that can't be used. Records without a fault are kept. raising: let exceptions of the plugin through.
    """
    # Prints of a plugin must not mix with the data on stdout.
    before_s, had_torch = time.thread_time(), "torch" in sys.modules
    with undisturbed():
        loaded = _load(source, raising)
    with_torch = "torch" in sys.modules and not had_torch
    return replace(loaded, cpu_s=time.thread_time() - before_s, with_torch=with_torch)


def _load(source: Source, raising: bool) -> Loaded:
    try:
        with traced(f"importing {source}"):
            module = import_plugin(source)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if raising or (isinstance(failure, OSError) and failure.errno == errno.EMFILE):
            raise
        return Loaded(source, faults=(f"{source}: cannot be imported: {one_line(failure)}",))
    faults: list[str] = []
    hooks = _hooks(module, source, faults)
    if not hooks and not faults:
        faults.append(f"{source}: {_no_hooks(module)}")
    records = {
        kind.type: tuple(_records(hooks.get(kind.hook, ()), kind, source, faults, raising)) for kind in KINDS
    }
    return Loaded(source, records, tuple(faults))


def _hooks(module: ModuleType, source: Source, faults: list[str]) -> dict[str, list[Hook]]:
    """Return the functions that a module marks with ``hookimpl``, by hook.

    pluggy's manager would also refuse an unknown hook, but then register none of the others.
    """
    known = [kind.hook for kind in KINDS]
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    found: dict[str, list[Hook]] = {}
    for name in dir(module):
        options = manager.parse_hookimpl_opts(module, name)
        if options is None:
            continue
        hook = options["specname"] or name
        if hook in known:
            function = getattr(module, name)
            asked = [p.name for p in signature(function).parameters.values() if _is_needed(p)]
            if asked:
                faults.append(f"{source}: {hook}() must take no arguments, but declares {', '.join(asked)}")
            else:
                found.setdefault(hook, []).append(function)
        elif not options["optionalhook"]:
            guess = nearest(hook, known)
            meant = f"; did you mean {guess!r}?" if guess else f"; there are {', '.join(known)}"
            faults.append(f"{source}: unknown hook {hook!r}{meant}")
    return found


def _no_hooks(module: ModuleType) -> str:
    """Return what to do about a module that brings nothing."""
    bare = next((kind.hook for kind in KINDS if callable(vars(module).get(kind.hook))), None)
    if bare is not None:
        return f"{bare} is not marked as a hook: put @attnbench.hookimpl above it"
    return "has no hooks: write one, such as attnbench_backends, with @attnbench.hookimpl above it"


def _is_needed(parameter: Parameter) -> bool:
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in variable


def _records(
    hooks: Iterable[Hook], kind: Kind, source: Source, faults: list[str], raising: bool
) -> Iterable[Any]:
    kept: list[Any] = []
    for hook in hooks:
        try:
            with traced(f"{kind.hook} of {source}"):
                records = hook()
                if not isinstance(records, Iterable):
                    faults.append(f"{source}: {kind.hook} gave {_no_records(records)}")
                    continue
                for record in records:
                    if (wrong := _fault(kind, record)) is None:
                        kept.append(record)
                    else:
                        faults.append(f"{source}: {kind.hook} gave {wrong}")
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            if raising:
                raise
            faults.append(f"{source}: {kind.hook} raised {one_line(failure)}")
    return kept


def _no_records(value: object) -> str:
    what = "None" if value is None else f"a {clean(type(value).__name__)}"
    return f"{what}: let it yield records, or return a list of them"


def _fault(kind: Kind, record: Any) -> str | None:
    named = kind.type.__name__
    if not isinstance(record, kind.type):
        return f"{clean(repr(record) if isinstance(record, str) else record)}, which is not a {named}"
    try:
        wrong = fault(record)
    except Exception as failure:
        # A value may raise when it is compared or printed.
        wrong = f"testing it raised {one_line(failure)}"
    return None if wrong is None else unusable(kind, wrong)


def unusable(kind: Kind, reason: str) -> str:
    """Return what a hook gave, in words."""
    return f"a {kind.type.__name__} that can't be used: {clean(reason)}"
