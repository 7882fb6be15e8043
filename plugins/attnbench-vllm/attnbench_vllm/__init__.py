"""vLLM's attention kernel for CPUs, with a paged cache, as a backend of attnbench."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_vllm.backend import VLLM


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the backend."""
    return (VLLM,)
