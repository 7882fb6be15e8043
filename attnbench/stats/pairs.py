"""One candidate against another: log ratios of paired samples, interval and p-value over repetitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from attnbench.stats.interval import Interval, printed_interval, sign_test
from attnbench.stats.samples import samples_of
from attnbench.types.record import Block, SetLine


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


@dataclass(frozen=True)
class Comparison:
    """A contender's time over a baseline's.

    ratio: the median over sets of the set's ratio; interval: its exact interval at 95 % or more, None where
    the sets are too few; p_value: of the sign test that the ratio is 1. sets: those that have pairs of both.
    pairs: those the ratio stands on; left_out: those left out since a side was disturbed. contended: more
    than half would have been left out, so all were kept. set_log_ratios: the log ratio of each set, in the
    order given: the independent values that all the rest is made of.
    """

    ratio: float
    interval: Interval | None
    p_value: float
    sets: int
    pairs: int
    left_out: int
    contended: bool
    set_log_ratios: tuple[float, ...]


def compare(
    sets: Iterable[SetLine], contender: str, baseline: str, *, leave_out: bool = True
) -> Comparison | None:
    """Compare two backends over the sets in which both have samples; None where there is no pair.

    The unit is the set, a fresh process of each: its log ratio is the median over its pairs, which are never
    counted as independent. Identical contenders that have the same number of turns, and are started and take
    turns in random order, give log ratios of either sign with equal chances, set by set, whatever the noise:
    that alone is what the p-value rests on. (Unlike numbers of samples, which only unlike speeds have, may
    favour one of them a little where noise is skewed.)

    Disturbed pairs are left out, unless that were more than half of all (``contended``). A single set
    that would lose all of its pairs keeps them: without it a run of nine sets would have no verdict.
    ``leave_out=False`` keeps all pairs.
    """
    both = [
        (line.blocks[contender], line.blocks[baseline])
        for line in sets
        if line.blocks.get(contender) and line.blocks.get(baseline)
    ]
    found = [set_log_ratios(*blocks, leave_out=leave_out) for blocks in both]
    left_out = sum(pairs.left_out for pairs in found)
    contended = left_out > sum(len(pairs.log_ratios) for pairs in found)
    for i, blocks in enumerate(both):
        if found[i].left_out and (contended or not found[i].log_ratios):
            found[i] = set_log_ratios(*blocks, leave_out=False)
    return _over_sets([pairs for pairs in found if pairs.log_ratios], contended)


def _over_sets(sets: list[SetPairs], contended: bool) -> Comparison | None:
    if not sets:
        return None
    logs = tuple(median(pairs.log_ratios) for pairs in sets)
    interval = printed_interval(logs)
    return Comparison(
        ratio=exp(median(logs)),
        interval=interval and Interval(exp(interval.low), exp(interval.high), interval.confidence),
        p_value=sign_test(logs),
        sets=len(sets),
        pairs=sum(len(pairs.log_ratios) for pairs in sets),
        left_out=sum(pairs.left_out for pairs in sets),
        contended=contended,
        set_log_ratios=logs,
    )
