"""Pairs of samples taken next to each other, and their log ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

from attnbench.compare.samples import Sample, samples_of
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
    pairs = list(_pairs(contender, baseline))
    kept = [pair for pair in pairs if not (leave_out and (pair[0].disturbed or pair[1].disturbed))]
    # A difference of logarithms changes its sign exactly with its sides; the logarithm of a quotient does
    # not.
    return SetPairs(tuple(log(mine.ns) - log(base.ns) for mine, base in kept), len(pairs) - len(kept))


def _pairs(contender: Sequence[Block], baseline: Sequence[Block]) -> Iterator[tuple[Sample, Sample]]:
    ours, theirs = samples_of(contender), samples_of(baseline)
    for stretch in sorted(ours.keys() & theirs.keys()):
        mine, base = ours[stretch], theirs[stretch]
        if not mine or not base:
            continue
        k = max(len(mine), len(base))
        for j in range(k):
            yield mine[j * len(mine) // k], base[j * len(base) // k]
