"""Ids of cases without what all of them have in common, so that a list of them can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Common:
    """What ids have in common, by segment and, of sizes, by word."""

    segments: frozenset[str]
    sizes: frozenset[str]

    @property
    def text(self) -> str:
        """In words; "" for nothing."""
        return ", ".join(sorted(self.segments) + sorted(self.sizes))


NOTHING = Common(frozenset(), frozenset())


def common_part(cases: Sequence[str]) -> Common:
    """What all of several ids have in common; nothing of one, whose name is whole."""
    if len(set(cases)) < 2:
        return NOTHING
    segments = [set(case.split("/")) for case in cases]
    sizes = [set(_sizes(case).split("-")) for case in cases]
    return Common(frozenset(set.intersection(*segments)), frozenset(set.intersection(*sizes)))


def shortened(case: str, common: Common) -> str:
    """An id without what is common; whole where nothing would be left."""
    if common == NOTHING:
        return case
    kept = []
    for segment in case.split("/"):
        if segment in common.segments:
            continue
        if segment == _sizes(case):
            segment = "-".join(word for word in segment.split("-") if word not in common.sizes)
        if segment:
            kept.append(segment)
    return " ".join(kept) or case


def _sizes(case: str) -> str:
    """The segment of the sizes, the third of an id."""
    return "".join(case.split("/")[2:3])
