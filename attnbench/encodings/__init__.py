"""The encodings that come with attnbench: a plugin like any other. Importing it imports no NumPy.

An encoding is an :class:`Encoding` in a module of this package; it is listed nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.encoding import DTYPE, Encoding


@hookimpl
def attnbench_encodings() -> Iterable[Encoding]:
    """Bring the one that attnbench itself uses, and every encoding of this package."""
    return DTYPE, *defined_in(__name__, Encoding)
