"""Attention in Numba for attnbench: a tiled one, and a fused additive one. Importing it imports no Numba."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_numba.additive import NUMBA_ADDITIVE
from attnbench_numba.tiled import NUMBA_TILED

__all__ = ["NUMBA_ADDITIVE", "NUMBA_TILED", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Both backends."""
    return NUMBA_TILED, NUMBA_ADDITIVE
