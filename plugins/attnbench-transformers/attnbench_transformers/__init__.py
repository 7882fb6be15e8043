"""The recurrences of transformers in plain torch, as backends of attnbench."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_transformers.delta_rules import BACKENDS


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring both forms of the gated delta rule and of Kimi delta attention."""
    return BACKENDS
