"""The scoring rules that come with attnbench: a plugin like any other.

A rule is a :class:`Rule` in a module of this package; it is listed nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.rule import Rule

FIRST = ("dot", "general", "additive", "concat_linear", "cosine", "alibi", "softcap")
"""Modules in the order of listing: plain products, learned scores, additions to a scaled product."""


@hookimpl
def attnbench_rules() -> Iterable[Rule]:
    """Bring every rule of this package."""
    return defined_in(__name__, Rule, FIRST)
