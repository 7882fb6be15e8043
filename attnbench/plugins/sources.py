"""Where plugins come from: entry points of installed distributions, without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions

GROUP = "attnbench"


@dataclass(frozen=True)
class Source:
    """A plugin that can be loaded: an entry point and the distribution that declares it.

    name: of the entry point. module: what to import. distribution, version: who brings it.
    """

    name: str
    module: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"


def installed() -> Iterator[Source]:
    """Every entry point in the group ``attnbench``, attnbench's own first, then by distribution.

    A distribution that is found twice on the path counts once, as Python itself would import it.
    """
    seen: set[str] = set()
    found: list[Source] = []
    for distribution in distributions():
        name = distribution.name
        if name in seen:
            continue
        seen.add(name)
        found += [
            Source(point.name, point.value, name, distribution.version)
            for point in distribution.entry_points
            if point.group == GROUP
        ]
    yield from sorted(found, key=lambda s: (s.distribution != "attnbench", s.distribution, s.name))
