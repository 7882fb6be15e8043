"""Load one plugin and read what it brings; nothing it does wrong reaches the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import pluggy

from attnbench import hookspecs
from attnbench.plugins.calling import traced, undisturbed
from attnbench.plugins.kinds import KINDS, Kind, fault
from attnbench.plugins.sources import import_plugin
from attnbench.types.extensions import Source
from attnbench.types.words import clean, nearest, one_line

MOST = 1000
"""Records that a hook may give; one that never ends would take all memory."""

T = TypeVar("T")
Hook = Callable[[], object]


@dataclass(frozen=True)
class Loaded:
    """What one plugin brings, by type of record, and what went wrong with it, one sentence a fault.

    cpu_s: CPU time of the thread that loaded it.
    """

    source: Source
    records: dict[type, tuple[Any, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = field(default=())
    cpu_s: float = 0.0

    def of(self, type_: type[T]) -> tuple[T, ...]:
        """The records of a type, as :class:`~attnbench.types.backend.Backend`."""
        return self.records.get(type_, ())


def load(source: Source, *, raising: bool = False) -> Loaded:
    """Import a plugin and call its hooks, each guarded.

    An import or a hook that raises (``SystemExit`` included, and ``os._exit``) becomes a fault, as does a
    hook name that doesn't exist and a record of the wrong type; what works is kept. raising: let that
    through.
    """
    # What a plugin prints while it loads must not stand among the data on stdout.
    before_s = time.thread_time()
    with undisturbed(), _exit_raises():
        loaded = _load(source, raising)
    return replace(loaded, cpu_s=time.thread_time() - before_s)


@contextmanager
def _exit_raises() -> Iterator[None]:
    """Make ``os._exit`` raise :class:`SystemExit`: it would end the command silently, with any status."""
    end, pid = os._exit, os.getpid()

    def stay(status: int) -> NoReturn:
        if os.getpid() != pid:
            end(status)
        raise SystemExit(f"os._exit({status!r})")

    os._exit = stay
    try:
        yield
    finally:
        os._exit = end


def _load(source: Source, raising: bool) -> Loaded:
    try:
        with traced(f"importing {source}"):
            module = import_plugin(source)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if raising:
            raise
        return Loaded(source, faults=(f"{source}: does not import: {one_line(failure)}",))
    faults: list[str] = []
    hooks = _hooks(module, source, faults)
    if not hooks and not faults:
        faults.append(f"{source}: {_no_hooks(module)}")
    records = {
        kind.type: tuple(_records(hooks.get(kind.hook, ()), kind, source, faults, raising)) for kind in KINDS
    }
    return Loaded(source, records, tuple(faults))


def _hooks(module: ModuleType, source: Source, faults: list[str]) -> dict[str, list[Hook]]:
    """What a module implements, by hook.

    A manager of pluggy's would say the same of what is mistyped, but take in nothing that comes after it.
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
                faults.append(f"{source}: {hook} asks for {', '.join(asked)}: hooks are given nothing")
            else:
                found.setdefault(hook, []).append(function)
        elif not options["optionalhook"]:
            guess = nearest(hook, known)
            meant = f"; did you mean {guess!r}?" if guess else f"; there are {', '.join(known)}"
            faults.append(f"{source}: unknown hook {hook!r}{meant}")
    return found


def _no_hooks(module: ModuleType) -> str:
    """What to do about a module that brings nothing."""
    bare = next((kind.hook for kind in KINDS if callable(vars(module).get(kind.hook))), None)
    if bare is not None:
        return f"{bare} is no hook yet: put @attnbench.hookimpl above it"
    return "has no hooks: write one, as attnbench_backends, with @attnbench.hookimpl above it"


def _is_needed(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in (
        Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD,
    )  # fmt: skip


def _records(
    hooks: Iterable[Hook], kind: Kind, source: Source, faults: list[str], raising: bool
) -> Iterable[Any]:
    kept: list[Any] = []
    for hook in hooks:
        try:
            with traced(f"{kind.hook} of {source}"):
                given = hook()
                if not isinstance(given, Iterable):
                    faults.append(f"{source}: {kind.hook} gave {_no_records(given)}")
                    continue
                for count, record in enumerate(given):
                    if count == MOST:
                        faults.append(f"{source}: {kind.hook} gave more than {MOST} records; these are used")
                        break
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


def _no_records(given: object) -> str:
    what = "None" if given is None else f"a {clean(type(given).__name__)}"
    return f"{what}: let it yield records, or return a list of them"


def _fault(kind: Kind, record: Any) -> str | None:
    named = kind.type.__name__
    if not isinstance(record, kind.type):
        return f"{clean(repr(record) if isinstance(record, str) else record)}, which is no {named}"
    try:
        wrong = fault(record)
    except Exception as failure:
        # A value of the author's own that raises when it's compared or shown.
        wrong = f"looking at it raised {one_line(failure)}"
    return None if wrong is None else f"a {named} that can't be used: {clean(wrong)}"
