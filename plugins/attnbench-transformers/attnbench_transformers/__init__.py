"""The recurrences of transformers in plain torch, as backends of attnbench."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench import Backend, hookimpl
from attnbench_transformers.delta_rules import BACKENDS
from attnbench_transformers.scans import SCANS


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring both forms of the gated delta rule, of Kimi delta attention, of Mamba-2 and of Mamba."""
    return *BACKENDS, *SCANS
