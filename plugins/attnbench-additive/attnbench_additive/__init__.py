"""Additive attention in fused tiles for attnbench. Importing it imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_additive.backend import FUSED_ADDITIVE

__all__ = ["FUSED_ADDITIVE", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the backend."""
    return (FUSED_ADDITIVE,)
