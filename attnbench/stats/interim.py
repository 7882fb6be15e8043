"""Backends of a live comparison that need no more repetitions: one look, by a rule fixed before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.sign_test import fewest_sets, median_interval, sign_test
from attnbench.stats.verdict import FALSE_DISCOVERIES
from attnbench.types.compared import BASE, HEAD, SIDES, sided
from attnbench.types.record import SetLine

FEWEST = 15
"""Repetitions before the look. If all agree on a difference, p is 0.00006: identical code is then called
slower in at most 0.003 % of cells more than without the look."""

SAME_AT_LEAST = 0.99
"""The confidence of the interval that must lie within the least effect; without a look it is 95 %."""


def sets_before_look(cells: int) -> int:
    """Return the repetitions before the look: one difference among ``cells`` comparisons can then count."""
    return max(FEWEST, fewest_sets(FALSE_DISCOVERIES / max(1, cells)))


def decided(found: Comparison, delta: float) -> bool:
    """Return whether the repetitions so far decide: all agree on a difference of more than ``delta``, or the
    interval at ``SAME_AT_LEAST`` lies within it."""
    ratios, least = found.set_log_ratios, log(1 + delta)
    if sign_test(ratios) <= sign_test([1.0] * len(ratios)) and abs(log(found.ratio)) > least:
        return True
    interval = median_interval(ratios, SAME_AT_LEAST)
    return interval is not None and -least <= interval.low <= interval.high <= least


def decided_candidates(
    sets: Sequence[SetLine], look: int, backends: Iterable[str], delta: float
) -> frozenset[str]:
    """Return the candidates that take part in no repetition after the look: both sides of each backend.

    A backend that has samples on one side alone can't be compared, and stops too. sets: of one case. look:
    the repetitions before it; 0 for none. delta: the least effect that counts. The answer depends on the
    first ``look`` repetitions alone, so it never changes.
    """
    if not 0 < look <= len(sets):
        return frozenset()
    done: set[str] = set()
    for backend in backends:
        found = compare(sets[:look], sided(backend, HEAD), sided(backend, BASE))
        if found is None or (found.sets == look and decided(found, delta)):
            done |= {sided(backend, side) for side in SIDES}
    return frozenset(done)
