"""The hooks a plugin may implement.

Each returns (or yields) typed records; a plugin implements the ones it needs::

    from attnbench import Backend, hookimpl

    @hookimpl
    def attnbench_backends():
        yield Backend(name="mine", summary="...", prepare=prepare)
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

import pluggy

from attnbench.types.backend import Backend
from attnbench.types.encoding import Encoding
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Suite, VerdictRule
from attnbench.types.fleet import Executor
from attnbench.types.operation import Operation
from attnbench.types.rule import Rule
from attnbench.types.storage import Storage

PROJECT = "attnbench"

T = TypeVar("T", Rule, Backend, Operation, Storage, Encoding)

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def attnbench_rules() -> Iterable[Rule]:  # type: ignore[empty-body]
    """Scoring rules."""


@hookspec
def attnbench_backends() -> Iterable[Backend]:  # type: ignore[empty-body]
    """Backends. The hook must be quick: import heavy libraries in ``prepare``."""


@hookspec
def attnbench_operations() -> Iterable[Operation]:  # type: ignore[empty-body]
    """Operations: what is computed around a rule, with its inputs and outputs."""


@hookspec
def attnbench_storages() -> Iterable[Storage]:  # type: ignore[empty-body]
    """Storages: where the numbers of sequences of unlike lengths lie."""


@hookspec
def attnbench_encodings() -> Iterable[Encoding]:  # type: ignore[empty-body]
    """Encodings: which codes and scales stand for keys and values."""


@hookspec
def attnbench_suites() -> Iterable[Suite]:  # type: ignore[empty-body]
    """Suites: named lists of cases."""


@hookspec
def attnbench_verdict_rules() -> Iterable[VerdictRule]:  # type: ignore[empty-body]
    """Rules that decide which of two backends is faster; the self-test scores them beside attnbench's."""


@hookspec
def attnbench_metrics() -> Iterable[Metric]:  # type: ignore[empty-body]
    """Numbers computed from records: one column each in tables, JSON, CSV and frames."""


@hookspec
def attnbench_reporters() -> Iterable[Reporter]:  # type: ignore[empty-body]
    """Formats for the records of runs: values of --format in run, check and report."""


@hookspec
def attnbench_environment_facts() -> Iterable[EnvironmentFact]:  # type: ignore[empty-body]
    """Facts about the machine or its software. Run files state them, and compare shows differences."""


@hookspec
def attnbench_executors() -> Iterable[Executor]:  # type: ignore[empty-body]
    """Executors: engines that run attnbench on the devices of many machines, for ``attnbench run --on``."""


def defined_in(package: str, kind: type[T]) -> tuple[T, ...]:
    """Gather the records of a type that a package's modules define, in the order of the modules' names."""
    # iter_modules sorts by name.
    names = (module.name for module in iter_modules(import_module(package).__path__))
    modules = [import_module(f"{package}.{name}") for name in names]
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, kind))
