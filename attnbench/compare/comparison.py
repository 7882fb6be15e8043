"""One contender against another: ratio, interval and p-value over sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp
from statistics import median

from attnbench.compare.interval import Interval, printed_interval, sign_test
from attnbench.compare.pairs import SetPairs, set_log_ratios
from attnbench.types.record import SetLine


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
