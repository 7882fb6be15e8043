"""Loading one plugin and reading what it brings; nothing it does wrong reaches the others."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pluggy

from attnbench import hookspecs
from attnbench.plugins.importing import import_plugin
from attnbench.plugins.tracing import traced
from attnbench.plugins.validating import fault
from attnbench.types.backend import Backend
from attnbench.types.rule import Rule
from attnbench.types.source import Source
from attnbench.types.suite import Suite
from attnbench.types.verdict import VerdictRule
from attnbench.types.words import one_line

_KINDS: dict[str, type] = {
    "attnbench_rules": Rule,
    "attnbench_backends": Backend,
    "attnbench_suites": Suite,
    "attnbench_verdict_rules": VerdictRule,
}


@dataclass(frozen=True)
class Loaded:
    """What one plugin brings, and what went wrong with it, one sentence a fault."""

    source: Source
    rules: tuple[Rule, ...] = ()
    backends: tuple[Backend, ...] = ()
    suites: tuple[Suite, ...] = ()
    verdict_rules: tuple[VerdictRule, ...] = ()
    faults: tuple[str, ...] = field(default=())


def load(source: Source, *, strict: bool = False) -> Loaded:
    """Import a plugin and call its hooks, each guarded.

    An import or a hook that raises (``SystemExit`` included) becomes a fault, as does a hook name
    that doesn't exist and a record of the wrong type; what works is kept. strict: let through what is raised.
    """
    # What a plugin prints while it loads must not stand among the data on stdout.
    with contextlib.redirect_stdout(sys.stderr):
        return _load(source, strict)


def _load(source: Source, strict: bool) -> Loaded:
    try:
        with traced(f"importing {source}"):
            module = import_plugin(source)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if strict:
            raise
        return Loaded(source, faults=(f"{source}: does not import: {one_line(failure)}",))
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    faults: list[str] = []
    try:
        manager.register(module, name=source.name)
        manager.check_pending()
    except pluggy.PluginValidationError as failure:
        faults.append(f"{source}: {one_line(failure)}")
    found = {hook: _records(manager, hook, source, faults, strict) for hook in _KINDS}
    return Loaded(
        source,
        rules=tuple(found["attnbench_rules"]),
        backends=tuple(found["attnbench_backends"]),
        suites=tuple(found["attnbench_suites"]),
        verdict_rules=tuple(found["attnbench_verdict_rules"]),
        faults=tuple(faults),
    )


def _records(
    manager: pluggy.PluginManager, hook: str, source: Source, faults: list[str], strict: bool
) -> Iterable[Any]:
    kind = _KINDS[hook]
    kept: list[Any] = []
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        try:
            with traced(f"{hook} of {source}"):
                for record in implementation.function():
                    if not isinstance(record, kind):
                        faults.append(f"{source}: {hook} gave {record!r}, which is no {kind.__name__}")
                    elif (wrong := fault(record)) is not None:
                        faults.append(f"{source}: {hook} gave a {kind.__name__} that can't be used: {wrong}")
                    else:
                        kept.append(record)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            if strict:
                raise
            faults.append(f"{source}: {hook} raised {one_line(failure)}")
    return kept
