"""Attention in JAX for attnbench: JAX's own function, and a tiled one. Importing it imports no JAX."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_jax.dot_product_attention import JAX_DOT_PRODUCT_ATTENTION
from attnbench_jax.tiled import JAX_TILED

__all__ = ["JAX_DOT_PRODUCT_ATTENTION", "JAX_TILED", "attnbench_backends"]


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Both backends."""
    return JAX_DOT_PRODUCT_ATTENTION, JAX_TILED
