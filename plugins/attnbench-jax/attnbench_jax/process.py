"""Settings of JAX for a process, made once before its first computation."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def configure() -> None:
    """float64 stays float64, and a call computes where it is made, not on a thread of JAX's.

    Both are switches of the whole process; a worker is one backend's own.
    """
    with _environment_as_it_was():
        import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)


@contextlib.contextmanager
def _environment_as_it_was() -> Iterator[None]:
    """Importing JAX sets variables of the environment, which is everybody's; they are read meanwhile."""
    before = set(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - before:
            del os.environ[name]
