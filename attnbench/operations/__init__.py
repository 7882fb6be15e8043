"""The operations that come with attnbench: a plugin like any other. Importing it imports no NumPy.

An operation is an :class:`Operation` in a module of this package; it is listed nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.operation import Operation


@hookimpl
def attnbench_operations() -> Iterable[Operation]:
    """Bring every operation of this package."""
    return defined_in(__name__, Operation)
