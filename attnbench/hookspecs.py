"""The hooks a plugin may implement.

Each returns (or yields) typed records; a plugin implements the ones it needs::

    from attnbench import Backend, hookimpl

    @hookimpl
    def attnbench_backends():
        yield Backend(name="mine", summary="...", prepare=prepare)
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from attnbench.types.backend import Backend
from attnbench.types.fact import EnvironmentFact
from attnbench.types.metric import Metric
from attnbench.types.reporter import Reporter
from attnbench.types.rule import Rule
from attnbench.types.suite import Suite
from attnbench.types.verdict import VerdictRule

PROJECT = "attnbench"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def attnbench_rules() -> Iterable[Rule]:  # type: ignore[empty-body]
    """Scoring rules that the plugin brings."""


@hookspec
def attnbench_backends() -> Iterable[Backend]:  # type: ignore[empty-body]
    """Backends that the plugin brings. Must be light: import the heavy library in ``prepare``."""


@hookspec
def attnbench_suites() -> Iterable[Suite]:  # type: ignore[empty-body]
    """Suites that the plugin brings."""


@hookspec
def attnbench_verdict_rules() -> Iterable[VerdictRule]:  # type: ignore[empty-body]
    """Rules that say which of two is the faster, for the self-test to score beside attnbench's own."""


@hookspec
def attnbench_metrics() -> Iterable[Metric]:  # type: ignore[empty-body]
    """Numbers to be made of records: a column each in tables, JSON, CSV and frames."""


@hookspec
def attnbench_reporters() -> Iterable[Reporter]:  # type: ignore[empty-body]
    """Formats for the records of runs: words for --format of run, check and report."""


@hookspec
def attnbench_environment_facts() -> Iterable[EnvironmentFact]:  # type: ignore[empty-body]
    """Facts of the machine or its software that each run file states, and compare tells where they differ."""
