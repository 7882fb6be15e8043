"""Which interpreter a server is, and what its environment has besides ours."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Interpreter:
    """python: what to start. variables: of its processes' environment, besides those of this process."""

    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)


HERE = Interpreter()
"""The one that this process runs in."""
