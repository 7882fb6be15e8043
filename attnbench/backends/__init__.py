"""The backends that come with attnbench: a plugin like any other. Importing it imports no torch.

A backend is a :class:`Backend` in a module of this package; it is listed nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import defined_in, hookimpl
from attnbench.types.backend import Backend

FIRST = (
    "eager", "sdpa", "bmm", "weighted_sum", "per_head_loop", "fused_multihead", "nn_multihead_attention",
    "chunked", "flex", "compiled",
)  # fmt: skip
"""Modules in the order of listing: the baseline first, then torch's own kernels."""


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring every backend of this package."""
    return defined_in(__name__, Backend, FIRST)
