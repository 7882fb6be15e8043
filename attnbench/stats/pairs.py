"""Samples one by one, and one candidate against another: log ratios of pairs, interval and p-value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from math import exp, log
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from attnbench.stats.tests import Interval, ratio_interval, ratio_p_value
from attnbench.types.record import RepetitionLine, SegmentSamples

MOST_LOST = 0.03
"""A sample that lost a larger share of its wall time to preemption is disturbed."""

LEAST_CLOCK = 0.75
"""So is a sample of a device that ran at a smaller share of its default clock."""

_LAUNCH_GRAIN_NS = 2_000
"""A launch takes microseconds, and reading two clocks is a part of it. No preemption is as short."""


class Samples(NamedTuple):
    """The samples of a segment in the order of slots: ns, the time per call; whether each was disturbed."""

    ns: list[float]
    disturbed: list[bool]


def disturbed(taken: SegmentSamples) -> list[bool]:
    """Return for each sample whether something else than the calls made it longer.

    The rule is symmetric and blind to the time. On the CPU, more than ``MOST_LOST`` of the wall time passed
    without the thread running. CPU time above wall time comes from the grain of the clocks and is no loss. A
    CPU time of 0 means that it is unknown. With several threads the CPU time is the calling thread's alone.
    If that thread sleeps while others work, nearly all samples look disturbed; :func:`compare` then keeps
    them. On a device, the same rule applies to the time of launching, and the clock must reach
    ``LEAST_CLOCK``.
    """
    if not taken.host_ns:
        return [
            0 < cpu < wall * (1 - MOST_LOST) for wall, cpu in zip(taken.wall_ns, taken.cpu_ns, strict=False)
        ]
    slow_mhz = LEAST_CLOCK * taken.default_clock_mhz
    clocks = chain(taken.clock_mhz, repeat(0))
    return [
        0 < cpu < host * (1 - MOST_LOST) - _LAUNCH_GRAIN_NS or 0 < mhz < slow_mhz
        for host, cpu, mhz in zip(taken.host_ns, taken.cpu_ns, clocks, strict=False)
    ]


def samples_of(samples: Iterable[SegmentSamples]) -> dict[int, Samples]:
    """Return the samples of one backend in one repetition, by segment."""
    rows: dict[int, list[tuple[int, float, bool]]] = {}
    for taken in samples:
        rows.setdefault(taken.segment, []).extend(
            (slot, wall / taken.calls, lost)
            for slot, wall, lost in zip(taken.slots, taken.wall_ns, disturbed(taken), strict=False)
        )
    found = {}
    for segment, row in rows.items():
        row.sort(key=itemgetter(0))
        found[segment] = Samples([ns for _, ns, _ in row], [lost for _, _, lost in row])
    return found


@dataclass(frozen=True)
class RepetitionPairs:
    """The pairs of two candidates in one repetition.

    log_ratios: log(candidate's time / baseline's time) of each pair that counts, in the order measured.
    left_out: the number of pairs with a disturbed side.
    """

    log_ratios: tuple[float, ...]
    left_out: int


def repetition_log_ratios(
    candidate: Sequence[SegmentSamples], baseline: Sequence[SegmentSamples], *, leave_out: bool = True
) -> RepetitionPairs:
    """Pair the samples of two candidates in one repetition by slot, within each segment that has both.

    Of m and n samples k = max(m, n) pairs are made: the j-th joins sample j m // k of the candidate with
    sample j n // k of the baseline, so the candidate with fewer samples lends each of them to several
    neighbours. A pair is left out if either side was disturbed, a rule that does not look at the ratio.
    ``leave_out=False`` keeps all pairs. Exchanging the two negates every log ratio exactly.
    """
    ours, theirs = samples_of(candidate), samples_of(baseline)
    found: list[float] = []
    left_out = 0
    for segment in sorted(ours.keys() & theirs.keys()):
        mine, base = ours[segment], theirs[segment]
        # Exchanging the sides negates a difference of logarithms exactly, but not the log of a quotient.
        mine_logs, base_logs = list(map(log, mine.ns)), list(map(log, base.ns))
        for i, j in _places(len(mine.ns), len(base.ns)):
            if leave_out and (mine.disturbed[i] or base.disturbed[j]):
                left_out += 1
            else:
                found.append(mine_logs[i] - base_logs[j])
    return RepetitionPairs(tuple(found), left_out)


def _places(m: int, n: int) -> Iterator[tuple[int, int]]:
    if m == n:
        return zip(range(m), range(n), strict=True)
    k = max(m, n) if m and n else 0
    return ((j * m // k, j * n // k) for j in range(k))


@dataclass(frozen=True)
class Comparison:
    """A candidate's time over a baseline's.

    ratio: the median over repetitions of the repetition's ratio. interval, p_value: see
    :mod:`attnbench.stats.tests`; exact, or of a model where there are few repetitions. repetitions: those
    that have pairs of both. pairs: those that count. left_out: those with a disturbed side. contended: more
    than half would have been left out, so all were kept. repetition_log_ratios: the log ratio of each
    repetition, in the order given; these are the independent values behind all the rest.
    """

    ratio: float
    interval: Interval | None
    p_value: float
    repetitions: int
    pairs: int
    left_out: int
    contended: bool
    repetition_log_ratios: tuple[float, ...]


def compare(repetitions: Iterable[RepetitionLine], candidate: str, baseline: str) -> Comparison | None:
    """Compare two backends over the repetitions in which both have samples; None where there is no pair.

    The unit is the repetition, because each has fresh processes. Its log ratio is the median over its pairs,
    which never count as independent. The p-value rests on one fact: two identical candidates with the same
    number of slots, started and called in random order, give log ratios of either sign with equal chances,
    whatever the noise. (Unequal numbers of samples, which only unequal speeds have, may favour one of them a
    little where noise is skewed.)

    Disturbed pairs are left out, unless these are more than half of all (``contended``). A single repetition
    that would lose all of its pairs keeps them; without it a run of nine repetitions would have no verdict.
    """
    both = [
        (line.samples[candidate], line.samples[baseline])
        for line in repetitions
        if line.samples.get(candidate) and line.samples.get(baseline)
    ]
    found = [repetition_log_ratios(*samples) for samples in both]
    contended = sum(pairs.left_out for pairs in found) > sum(len(pairs.log_ratios) for pairs in found)
    for i, samples in enumerate(both):
        if found[i].left_out and (contended or not found[i].log_ratios):
            found[i] = repetition_log_ratios(*samples, leave_out=False)
    found = [pairs for pairs in found if pairs.log_ratios]
    if not found:
        return None
    logs = tuple(median(pairs.log_ratios) for pairs in found)
    return Comparison(
        ratio=exp(median(logs)),
        interval=ratio_interval(logs),
        p_value=ratio_p_value(logs),
        repetitions=len(found),
        pairs=sum(len(pairs.log_ratios) for pairs in found),
        left_out=sum(pairs.left_out for pairs in found),
        contended=contended,
        repetition_log_ratios=logs,
    )
