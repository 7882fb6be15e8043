"""Working a rule that a plugin brought: its prints stay off stdout, its failures are told with its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from attnbench.plugins.calling import Raised, call
from attnbench.plugins.registry import Entry
from attnbench.types.errors import AttnbenchError, PluginFailed
from attnbench.types.rule import Rule

T = TypeVar("T")


def guarded(entry: Entry[Rule], function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of ours that calls a rule's.

    Raises:
        PluginFailed: the rule's raised or gave what it shouldn't; in a sentence that says whose it is.
        AttnbenchError: what the function raises on purpose.
    """
    try:
        return call(function, *arguments)
    except Raised as failure:
        cause = failure.__cause__
        if isinstance(cause, AttnbenchError) and not isinstance(cause, PluginFailed):
            raise cause from None
        said = cause if isinstance(cause, PluginFailed) else f"the rule {entry.name} raised {failure}"
        raise PluginFailed(f"plugin {entry.source}: {said}") from failure
