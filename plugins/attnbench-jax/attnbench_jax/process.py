"""What JAX is told of a process, once, before it computes anything in it."""

from __future__ import annotations


def configure() -> None:
    """float64 stays float64, and a call computes where it is made, not on a thread of JAX's.

    Both are switches of the whole process; a worker is one backend's own.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
