"""Cases that differ in length alone, and how time and memory grow with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import cos, fsum, isfinite, log, pi, sin, sqrt, tan
from statistics import fmean, linear_regression

from attnbench.cases.identity import case_id, parse_case
from attnbench.reports.units import interval, number, reach
from attnbench.types.record import Record

AT_LEAST = 0.95
"""Confidence of an exponent's interval."""
FEWEST_FITTED = 3
"""Lengths that an interval takes: two always lie on a line."""


@dataclass(frozen=True)
class Family:
    """Cases that differ in length alone.

    label: their id, with a star for the length. records: (length, record) of those with a time, by backend
    and length.
    """

    label: str
    records: tuple[tuple[int, Record], ...]

    @property
    def lengths(self) -> list[int]:
        """The lengths that occur, ascending."""
        return sorted({length for length, _ in self.records})


@dataclass(frozen=True)
class Growth:
    """A power of the length: quantity ~ length^exponent, between ``shortest`` and ``longest``.

    low, high: its interval, None of fewer than three lengths.
    """

    exponent: float
    low: float | None
    high: float | None
    shortest: int
    longest: int
    lengths: int

    @property
    def over(self) -> str:
        """The lengths it was fitted over, and how many they are."""
        return f"{self.shortest} to {self.longest} ({self.lengths})"

    @property
    def text(self) -> str:
        """The exponent with its interval, to the digits that it justifies."""
        if self.low is None or self.high is None:
            return f"{number(self.exponent)}?"
        far = reach(self.exponent, self.low, self.high)
        return f"{number(self.exponent, far)} {interval(self.exponent, self.low, self.high)}"


def families(records: Iterable[Record]) -> list[Family]:
    """The families that have two lengths or more, those with the most points first.

    Queries and keys may grow together, or one of them while the other stays: each is a family of its own.
    """
    found: dict[str, dict[tuple[int, str], tuple[int, Record]]] = {}
    for record in records:
        if record.status == "ok" and record.median_ms is not None:
            for label, length in _labels(record.case):
                found.setdefault(label, {})[(length, record.backend)] = (length, record)
    made = [
        Family(label, tuple(sorted(those.values(), key=lambda one: (one[1].backend, one[0]))))
        for label, those in found.items()
    ]
    return sorted((one for one in made if len(one.lengths) > 1), key=lambda one: -len(one.records))


def _labels(text: str) -> list[tuple[str, int]]:
    case = parse_case(text)
    # A length that no other part of an id can have: sizes are 1 or more, and this one is taken out again.
    mark = 987_654_321
    if case.Lq == case.Lk:
        whole = case_id(replace(case, Lq=mark, Lk=mark))
        return [(whole.replace(str(mark), "*"), case.Lq)]
    keys = case_id(replace(case, Lk=mark)).replace(str(mark), "*")
    queries = case_id(replace(case, Lq=mark)).replace(str(mark), "*")
    return [(keys, case.Lk), (queries, case.Lq)]


def growth(points: Sequence[tuple[int, float]]) -> Growth | None:
    """The slope of a straight line through logarithms, by least squares; None of fewer than two lengths.

    points: (length, quantity). The interval is Student's, from how far the points lie off the line, which is
    mostly because no one power describes all lengths: Draper and Smith, Applied Regression Analysis (3rd ed.,
    1998), 1.4.
    """
    kept = [(length, amount) for length, amount in points if length > 0 and amount > 0 and isfinite(amount)]
    lengths = sorted({length for length, _ in kept})
    if len(lengths) < 2:
        return None
    x, y = [log(length) for length, _ in kept], [log(amount) for _, amount in kept]
    exponent, start = linear_regression(x, y)
    low, high = None, None
    if len(lengths) >= FEWEST_FITTED:
        off = fsum((amount - start - exponent * length) ** 2 for length, amount in zip(x, y, strict=True))
        middle = fmean(x)
        spread = fsum((length - middle) ** 2 for length in x)
        freedom = len(kept) - 2
        far = student_quantile((1 + AT_LEAST) / 2, freedom) * sqrt(off / freedom / spread)
        low, high = exponent - far, exponent + far
    return Growth(exponent, low, high, lengths[0], lengths[-1], len(lengths))


def student_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t for a share of 0.5 or more and a whole number of degrees of freedom.

    Bisects the closed form of the distribution: Abramowitz and Stegun, Handbook (1964), 26.7.3 and 26.7.4.
    """
    low, high = 0.0, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        below = (1 + _student_within(middle, freedom)) / 2 < share
        low, high = (middle, high) if below else (low, middle)
    return tan(high) * sqrt(freedom)


def _student_within(angle: float, freedom: int) -> float:
    """The chance that t lies within ±tan(angle)·√freedom."""
    odd = freedom % 2
    term = total = sin(angle) * (cos(angle) if odd else 1)
    if freedom == 1:
        total = 0.0
    for n in range(2 + odd, freedom - 1, 2):
        term *= (n - 1) / n * cos(angle) ** 2
        total += term
    return 2 / pi * (angle + total) if odd else total
