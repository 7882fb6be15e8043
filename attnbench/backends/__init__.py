"""The backends that come with attnbench: a plugin like any other. Importing it imports no torch.

A backend is a :class:`Backend` in a module of this package. No list names it.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.backend import Backend


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring every backend of this package."""
    return defined_in(__name__, Backend)
