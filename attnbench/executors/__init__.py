"""The built-in executors."""

from __future__ import annotations

from attnbench.executors.local import LOCAL
from attnbench.hookspecs import hookimpl
from attnbench.types.fleet import Executor


@hookimpl
def attnbench_executors() -> tuple[Executor, ...]:
    """Bring them."""
    return (LOCAL,)
