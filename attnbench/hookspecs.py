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
