"""Which interpreter a server is, and what comes first on its import path."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Interpreter:
    """python: what to start. paths: folders that come before all others on its import path."""

    python: str = sys.executable
    paths: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """What it adds to the environment of its processes."""
        if not self.paths:
            return {}
        there = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join((*self.paths, *([there] if there else ())))}


HERE = Interpreter()
"""The one that this process runs in."""
