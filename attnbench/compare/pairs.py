"""Pairs of samples taken next to each other, and their log ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

from attnbench.compare.samples import samples_of
from attnbench.types.record import Block


@dataclass(frozen=True)
class SetPairs:
    """The pairs of two contenders in one set.

    log_ratios: of each pair that stands, log(contender's time / baseline's time), in the order measured;
    left_out: how many pairs were left out because either side was disturbed.
    """

    log_ratios: tuple[float, ...]
    left_out: int


def set_log_ratios(
    contender: Sequence[Block], baseline: Sequence[Block], *, leave_out: bool = True
) -> SetPairs:
    """Pair the samples of two contenders in one set by turn, within each stretch that has both.

    Of m and n samples k = max(m, n) pairs are made: the j-th joins sample j m // k of the contender with
    sample j n // k of the baseline, so the one with fewer samples lends each of them to several neighbours. A
    pair is left out where either side was disturbed (``samples.disturbed``): a rule that is symmetric and
    does not look at the ratio, so that it favours nobody. ``leave_out=False`` keeps all pairs.
    Exchanging the two negates every log ratio exactly.
    """
    ours, theirs = samples_of(contender), samples_of(baseline)
    found: list[float] = []
    left_out = 0
    for stretch in sorted(ours.keys() & theirs.keys()):
        mine, base = ours[stretch], theirs[stretch]
        # A difference of logarithms changes its sign exactly with its sides, that of a quotient does not.
        mine_logs, base_logs = list(map(log, mine.ns)), list(map(log, base.ns))
        for i, j in _places(len(mine.ns), len(base.ns)):
            if leave_out and (mine.disturbed[i] or base.disturbed[j]):
                left_out += 1
            else:
                found.append(mine_logs[i] - base_logs[j])
    return SetPairs(tuple(found), left_out)


def _places(m: int, n: int) -> Iterator[tuple[int, int]]:
    if m == n:
        return zip(range(m), range(n), strict=True)
    k = max(m, n) if m and n else 0
    return ((j * m // k, j * n // k) for j in range(k))
