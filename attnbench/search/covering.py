"""Which classes of properties have met in a search, and the row to ask next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

from attnbench.search.space import Row, Space, can_meet
from attnbench.trial.point import Point

Classes = frozenset[tuple[str, str]]
"""Two or three classes, each with the name of its property."""

TRIES = 12
"""Rows that are drawn for a pair before it counts as one that the backend declines."""
CHOICES = 3
"""Rows that are drawn where no pair is left, of which the one with most new triples is asked."""


@dataclass(frozen=True)
class DrawnRow:
    """A row, and a point that has its classes."""

    row: Row
    point: Point


class Covering:
    """The pairs of classes that have met, of all those that can meet in a space."""

    def __init__(self, space: Space, random: Random) -> None:
        self.space, self.random = space, random
        self.waiting: list[Classes] = [
            frozenset({(one, a), (other, b)})
            for one, other in combinations(space.properties, 2)
            for a in space.properties[one]
            for b in space.properties[other]
            if can_meet(one, a, other, b)
        ]
        random.shuffle(self.waiting)
        self.met: set[Classes] = set()
        self.never_made: set[Classes] = set()
        self.tried: set[Classes] = set()
        self.triples: set[Classes] = set()

    def draw(self) -> DrawnRow | None:
        """Return a point for a pair that has not met, else one with many new triples.

        None if no point could be made of many rows.
        """
        while self.waiting:
            pair = self.waiting.pop()
            if pair in self.met:
                continue
            drawn = self._draw(dict(pair))
            if drawn is not None:
                if pair not in self.tried:
                    # The point may tell nothing of it: then it comes once more.
                    self.tried.add(pair)
                    self.waiting.insert(0, pair)
                return drawn
            self.never_made.add(pair)
        drawn_ones = [one for one in (self._draw({}) for _ in range(CHOICES)) if one is not None]
        return max(drawn_ones, key=self._new_triples, default=None)

    def _draw(self, fixed: Row) -> DrawnRow | None:
        for _ in range(TRIES):
            row = self.space.row(self.random, fixed)
            point = None if row is None else self.space.point(row, self.random)
            if row is not None and point is not None:
                return DrawnRow(row, point)
        return None

    def _new_triples(self, one: DrawnRow) -> int:
        return sum(triple not in self.triples for triple in _of(one.row, 3))

    def count(self, row: Row) -> None:
        """Count the classes of a point that was judged, and could show faults."""
        pairs = set(_of(row, 2))
        self.met |= pairs
        self.never_made -= pairs
        self.triples.update(_of(row, 3))

    @property
    def possible(self) -> int:
        """The number of pairs that have met, or still may."""
        return len(self.met.union(self.waiting))

    @property
    def share_of_triples(self) -> float:
        """The triples that have met, of all that can."""
        classes = list(self.space.properties.values())
        total = sum(len(a) * len(b) * len(c) for a, b, c in combinations(classes, 3))
        return len(self.triples) / max(1, total)


def _of(row: Row, count: int) -> Iterator[Classes]:
    return (frozenset(some) for some in combinations(row.items(), count))
