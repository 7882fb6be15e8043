"""The storages that come with attnbench: a plugin like any other. Importing it imports no NumPy.

A storage is a :class:`Storage` in a module of this package; it is listed nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.storage import APART, DENSE, Storage


@hookimpl
def attnbench_storages() -> Iterable[Storage]:
    """Bring the two that attnbench itself uses, and every storage of this package."""
    return DENSE, APART, *defined_in(__name__, Storage)
