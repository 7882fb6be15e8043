"""Where a plugin comes from."""

from __future__ import annotations

from msgspec import Struct


class Source(Struct, frozen=True):
    """A plugin that can be loaded, and who brings it.

    name: what it's called: that of its entry point, or of its file. module: what to import. distribution,
    version: who brings it; of a file its name and the first digits of its SHA-256. path: of the file to load
    as ``module``; "" for what is importable.
    """

    name: str
    module: str
    distribution: str
    version: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"
