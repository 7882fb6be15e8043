"""The scoring rules that come with attnbench: a plugin like any other.

A rule is a :class:`Rule` in a module of this package. No list names it;
``tests/suites/make_edges.py`` gives it cases in the suite ``edges``.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.rule import Rule


@hookimpl
def attnbench_rules() -> Iterable[Rule]:
    """Bring every rule of this package."""
    return defined_in(__name__, Rule)
