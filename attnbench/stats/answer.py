"""The answer of a run: the fastest backend of each case, the mean ratios over the common cases, and the
time of all counted calls of a model or program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from statistics import fmean, median
from types import MappingProxyType
from typing import Literal

from attnbench.cases.ids import parse_case
from attnbench.cases.suites import TORCHS
from attnbench.stats.records import CONTENDED, CROWDED
from attnbench.stats.tests import (
    LEVEL,
    SIGN_TEST_FROM,
    Interval,
    of_median,
    ratio_interval,
    ratio_p_value,
    time_interval,
)
from attnbench.stats.verdict import word_of
from attnbench.types.case import Case
from attnbench.types.record import Record
from attnbench.types.status import MEANING

Sure = Literal["clear", "tie", "few repetitions", "alone"]
"""How sure it is that the fastest backend of a case is the fastest."""

MOST_LEFT_OUT = 0.25
"""A row that lost a larger share of its pairs to other processes is disturbed."""
_WIDEST = 2
"""So is one whose time has an interval that ends at more than so many times its beginning: its ratios, of
calls beside each other, tell more."""
_MOST_DISTURBED = 0.1
"""A run with a larger share of disturbed measurements says so."""

_NEAR = 1.1
"""Of a tie a backend that took longer than so many times the fastest is no one's choice."""

MOST_EXTRA_BYTES = 2**20
"""A backend that allocates so much more in a call than torch's function may owe its time to freed memory that
workers keep. A program gives it back, and faults it in again at every call, which may take longer than the
call."""

Times = Mapping[str, Mapping[int, Mapping[str, float]]]
"""By case, repetition and backend: the median time of a call in that repetition."""


def extra_bytes(record: Record, other: Record) -> int:
    """Return how many bytes a call allocates more than another's, 0 up to :data:`MOST_EXTRA_BYTES`."""
    more = (record.peak_extra_bytes or 0) - (other.peak_extra_bytes or 0)
    return more if more > MOST_EXTRA_BYTES else 0


@dataclass(frozen=True)
class TimeRatio:
    """A time over another: the median over repetitions, with its interval (None for too few).

    Of one case it is that of paired samples, from which verdicts follow too. Over several cases it is of the
    median times of each repetition.
    """

    ratio: float
    interval: Interval | None


@dataclass(frozen=True)
class Lead:
    """The fastest backend of a case.

    following: the next one, and its time over the fastest's. ties: the backends that are shown to be slower
    than no other, the fastest first. sure: ``clear`` if there are none, by the rule of verdicts without the
    correction for many comparisons; ``tie`` if there are; ``few repetitions`` if there are too few
    repetitions for either; ``alone`` if no other backend has a time. over: the time of each other backend
    over the fastest's. Every report takes its ratios within a case from here.
    """

    best: Record
    following: Record | None
    takes: TimeRatio | None
    ties: tuple[str, ...]
    sure: Sure
    over: Mapping[str, TimeRatio] = field(default_factory=dict)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The fastest backend, and those that may be as fast."""
        return (self.best.backend, *self.ties)


@dataclass(frozen=True)
class Standing:
    """One backend over a run.

    cases: the number of cases that it has a time for. wins: those where it is clearly the fastest. ties:
    those where it shares the lead. mean: the geometric mean of its ratios over the common cases, None if it
    lacks one of them; 1 for the baseline.
    """

    backend: str
    cases: int
    wins: int
    ties: int
    mean: TimeRatio | None


@dataclass(frozen=True)
class RunAnswer:
    """The answer of a run.

    leads: one for each case with a time. standings: the least mean first, then those without a mean.
    baseline: the backend that all ratios refer to, None if they have several. common: the common cases.
    timed: the number of records with a time; disturbed: those that other processes disturbed. totals: of one
    step, where calls were counted. chosen: the backend to use in each case, of a tie the shared one;
    chosen_disturbed: the cases in which its measurement was disturbed, and whether its ratios were too.
    crowded: whether each that was disturbed had threads on all cores, which attnbench itself shared. known:
    backends that the user brought, whose times a sentence has too. partial: totals of backends that
    have a time in some cases of a step alone, as of softmax attention beside recurrent layers: in the others
    the backend to use stands in.
    """

    leads: tuple[Lead, ...]
    standings: tuple[Standing, ...]
    baseline: str | None
    common: tuple[str, ...]
    timed: int
    disturbed: int
    totals: tuple[Total, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)
    chosen_disturbed: Mapping[str, bool] = field(default_factory=dict)
    crowded: bool = False
    known: tuple[str, ...] = ()
    partial: tuple[Total, ...] = ()


def answer(
    records: Sequence[Record],
    times: Iterable[tuple[str, int, Mapping[str, float]]],
    counts: Mapping[str, float] = MappingProxyType({}),
    stages: Mapping[str, str] = MappingProxyType({}),
    without: tuple[str, ...] = (),
    known: tuple[str, ...] = (),
    suites: Mapping[str, str] = MappingProxyType({}),
) -> RunAnswer:
    """Return the answer of one run, or of several on one kind of device.

    times: for each case and repetition, the median time of a call of each backend. The unit is the
    repetition, as in all intervals: its geometric mean is taken over the common cases first, then the median
    and the interval over repetitions. Cases of one repetition may share processes and a moment of the
    machine, so they do not count as independent. counts: calls in one step, by case, where somebody counted;
    stages: of these counts, which are summed by stage; without: as of :class:`Total`; known: as of the
    answer. suites: of each case; ties in one suite change no choice in another.
    """
    by_case = by_repetition(times)
    cases: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok" and record.median_ms is not None:
            cases.setdefault(record.case, []).append(record)
    timed = [record for those in cases.values() for record in those]
    leads = tuple(_lead(those, by_case.get(case, {})) for case, those in cases.items())
    baselines = {record.baseline for record in timed if record.ratio is not None}
    baseline = baselines.pop() if len(baselines) == 1 else None
    common = common_cases(cases, baseline)
    standings = [
        _standing(name, timed, leads, _mean(name, baseline, common, cases, by_case))
        for name in dict.fromkeys(record.backend for record in timed)
    ]
    standings.sort(key=lambda one: (one.mean is None, one.mean.ratio if one.mean else -one.cases))
    chosen: dict[str, str] = {}
    for suite in dict.fromkeys(suites.get(lead.best.case, "") for lead in leads):
        own = {lead.best.case: lead for lead in leads if suites.get(lead.best.case, "") == suite}
        chosen |= _chosen([*own.values()], [record for record in records if record.case in own])
    found: list[Total] = []
    partial: list[Total] = []
    for (stage, threads), its in by_stage(counts, stages).items():
        found += totals(chosen, by_case, its, stage, threads, without, leads)
        partial += partial_totals(chosen, by_case, its, stage, threads)
    busy = [record for record in timed if disturbed(record)]
    uses = {record.case: contended(record) for record in busy if record.backend == chosen[record.case]}
    return RunAnswer(
        leads, tuple(standings), baseline, common, len(timed), len(busy), tuple(found), chosen, uses,
        bool(busy) and all(any(note.startswith(CROWDED) for note in record.notes) for record in busy),
        known, tuple(partial),
    )  # fmt: skip


def is_failure(record: Record) -> bool:
    """Return whether a record has neither a right output nor a reason not to run."""
    return record.status != "ok" and not MEANING[record.status].declined


def _chosen(leads: Sequence[Lead], records: Iterable[Record]) -> dict[str, str]:
    """Return the backend to use in each case: as few backends as possible, that of most cases first.

    In each case it is the fastest, or may be and took hardly longer. One that fails in no case goes before
    others.
    """
    failed = {record.backend for record in records if is_failure(record)}

    near = {
        lead.best.case: [
            lead.best.backend,
            *(name for name in lead.ties if name in lead.over and lead.over[name].ratio <= _NEAR),
        ]
        for lead in leads
    }
    chosen: dict[str, str] = {}
    left = list(leads)
    while left:
        may = Counter(name for lead in left for name in near[lead.best.case])
        sure = Counter(lead.best.backend for lead in left if lead.sure == "clear")
        # Of backends that tie, torch's function is there already.
        best = max(may, key=lambda name: (name not in failed, may[name], sure[name], name == TORCHS))
        chosen |= {lead.best.case: best for lead in left if best in near[lead.best.case]}
        left = [lead for lead in left if lead.best.case not in chosen]
    return chosen


def by_stage(
    counts: Mapping[str, float], stages: Mapping[str, str]
) -> dict[tuple[str, int], dict[str, float]]:
    """Return counts by their stage, "" where none is said, and number of threads.

    The number is 0 unless all cases of the stage were counted for each of several: that is one step in
    several ways, and not one step of them together.
    """
    of_stage: dict[str, dict[int, dict[Case, str]]] = {}
    for name in counts:
        case = parse_case(name)
        by_threads = of_stage.setdefault(stages.get(name, ""), {})
        by_threads.setdefault(case.threads, {})[replace(case, threads=1)] = name
    found: dict[tuple[str, int], dict[str, float]] = {}
    for stage, by_threads in of_stage.items():
        alike = len(by_threads) > 1 and len({frozenset(its) for its in by_threads.values()}) == 1
        for threads, its in by_threads.items():
            place = stage, threads if alike else 0
            found.setdefault(place, {}).update((name, counts[name]) for name in its.values())
    return found


def by_repetition(times: Iterable[tuple[str, int, Mapping[str, float]]]) -> Times:
    """Return times by case and repetition."""
    by_case: dict[str, dict[int, Mapping[str, float]]] = {}
    for case, index, taken in times:
        by_case.setdefault(case, {})[index] = taken
    return by_case


def common_cases(cases: Mapping[str, Sequence[Record]], baseline: str | None) -> tuple[str, ...]:
    """Return the cases over which means are taken, so that backends are compared on the same cases.

    They begin as the cases with a ratio. The backends with the most cases come first; each leaves its own
    cases, as long as more than half of all cases remain.
    Otherwise it has no mean.
    """
    has = {case: {record.backend for record in those} for case, those in cases.items()}
    common = [case for case in cases if baseline in has[case]]
    counts = Counter(name for case in common for name in has[case])
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        shared = [case for case in common if name in has[case]]
        if 2 * len(shared) > len(cases):
            common = shared
    return tuple(common)


def _lead(those: Sequence[Record], repetitions: Mapping[int, Mapping[str, float]]) -> Lead:
    best = min(those, key=lambda one: (one.backend != one.best, one.median_ms))
    others = sorted(
        (one for one in those if one is not best), key=lambda one: (one.ratio_to_best or 0.0, one.median_ms)
    )
    if not others:
        return Lead(best, None, None, (), "alone")
    found = {one.backend: over_another(one, best, repetitions) for one in others}
    times = {one.backend: found[one.backend].compared or _untold(one, best) for one in others}
    takes = found[others[0].backend].compared
    if takes is None or takes.interval is None:
        return Lead(best, others[0], takes, (), "few repetitions", times)
    rivals = rivals_of(best, others, repetitions)
    few = any(found[name].few for name in rivals)
    return Lead(
        best, others[0], takes, rivals, "few repetitions" if few else "tie" if rivals else "clear", times
    )


def _untold(one: Record, best: Record) -> TimeRatio:
    """Return the quotient of the times of two records that share no repetition."""
    assert one.median_ms is not None
    assert best.median_ms is not None
    return TimeRatio(one.ratio_to_best or one.median_ms / best.median_ms, None)


@dataclass(frozen=True)
class Over:
    """A backend over another. slower: by the rule of verdicts. few: fewer repetitions than the sign test
    needs.
    """

    compared: TimeRatio | None
    slower: bool
    few: bool


def over_another(one: Record, other: Record, repetitions: Mapping[int, Mapping[str, float]]) -> Over:
    """Compare a backend with another of its case, in pairs of samples where they were paired.

    Pairs are those with the fastest and with the baseline. repetitions: the median times by repetition. For
    other backends the quotients of these times stand in. They also do in files from before 2026-11-28, which
    have no interval of the paired ratio to the fastest.
    """
    paired = _of_pairs(one, other)
    if paired is not None:
        takes: TimeRatio | None
        takes, p_value = paired
        few = min(one.repetitions, other.repetitions) < SIGN_TEST_FROM
    else:
        pair = {one.backend, other.backend}
        logs = [log(ns[one.backend] / ns[other.backend]) for ns in repetitions.values() if pair <= ns.keys()]
        # The test is of what the interval shows: around the ratio of pairs, not that of the times.
        ratio = one.ratio_to_best if one.best == other.backend else None
        moved = 0.0 if ratio is None or not logs else log(ratio) - median(logs)
        logs = [value + moved for value in logs]
        few, p_value = len(logs) < SIGN_TEST_FROM, ratio_p_value(logs)
        takes = _ratio(logs)
    if takes is None or takes.interval is None:
        return Over(takes, False, few)
    low, high = takes.interval.low, takes.interval.high
    word = word_of(takes.ratio, low, high, one.delta or 0.0, sure=p_value <= LEVEL)
    return Over(takes, word == "slower", few)


def rivals_of(
    best: Record, others: Sequence[Record], repetitions: Mapping[int, Mapping[str, float]]
) -> tuple[str, ...]:
    """Return the backends that may be as fast as the fastest: none of its case is shown to be faster.

    others: all others with a time. The fastest alone does not decide. Where its times scatter, a backend may
    not be shown to be slower than it, but to be slower than one whose times are steady.
    """
    near = [one for one in others if not over_another(one, best, repetitions).slower]
    return tuple(
        one.backend
        for one in near
        if not any(over_another(one, other, repetitions).slower for other in others if other is not one)
    )


def _of_pairs(one: Record, other: Record) -> tuple[TimeRatio, float] | None:
    """Return the ratio of two backends whose samples were paired, with its p-value; None for others."""
    if one.best == other.backend and one.ratio_to_best is not None:
        if one.ratio_to_best_p_value is None:
            return None
        low, high, confidence = one.ratio_to_best_low, one.ratio_to_best_high, one.ratio_to_best_confidence
        return TimeRatio(one.ratio_to_best, _interval(low, high, confidence)), one.ratio_to_best_p_value
    if one.baseline == other.backend:
        return _over_baseline(one)
    found = _over_baseline(other) if other.baseline == one.backend else None
    if found is None or (own := found[0].interval) is None:
        return None
    turned = Interval(1 / own.high, 1 / own.low, own.confidence)
    return TimeRatio(1 / found[0].ratio, turned), found[1]


def _over_baseline(one: Record) -> tuple[TimeRatio, float] | None:
    if one.ratio is None or one.p_value is None:
        return None
    interval = _interval(one.ratio_low, one.ratio_high, one.ratio_confidence)
    return TimeRatio(one.ratio, interval), one.p_value


def _interval(low: float | None, high: float | None, confidence: float | None) -> Interval | None:
    return None if low is None or high is None else Interval(low, high, confidence or 0.0)


def _ratio(logs: Sequence[float]) -> TimeRatio | None:
    """Return a ratio of times from its logarithm in each repetition; None without any."""
    if not logs:
        return None
    return TimeRatio(exp(median(logs)), ratio_interval(logs))


def _mean(
    name: str,
    baseline: str | None,
    common: Sequence[str],
    cases: Mapping[str, Sequence[Record]],
    times: Times,
) -> TimeRatio | None:
    if baseline is None or not all(any(one.backend == name for one in cases[case]) for case in common):
        return None
    if name == baseline:
        return TimeRatio(1.0, None) if common else None
    repetitions = [set(times.get(case, {})) for case in common]
    means = []
    for index in sorted(set.intersection(*repetitions)) if repetitions else ():
        taken = [times[case][index] for case in common]
        if all(name in ns and baseline in ns for ns in taken):
            means.append(fmean(log(ns[name] / ns[baseline]) for ns in taken))
    return _ratio(means)


def _standing(name: str, timed: Iterable[Record], leads: Sequence[Lead], mean: TimeRatio | None) -> Standing:
    wins = sum(lead.sure == "clear" and lead.best.backend == name for lead in leads)
    ties = sum(lead.sure == "tie" and name in lead.candidates for lead in leads)
    return Standing(name, sum(record.backend == name for record in timed), wins, ties, mean)


def disturbed(record: Record) -> bool:
    """Return whether other processes disturbed a measurement: its pairs, its core, or its time as a whole."""
    if record.low_ms and record.high_ms and record.high_ms > _WIDEST * record.low_ms:
        return True
    if contended(record):
        return True
    return record.pairs_left_out > MOST_LEFT_OUT * (record.pairs + record.pairs_left_out)


def contended(record: Record) -> bool:
    """Return whether most samples were disturbed, so that ratios have them too."""
    return any(note.startswith(f"{CONTENDED}:") for note in record.notes)


def is_busy(disturbed: int, timed: int) -> bool:
    """Return whether a run with so many disturbed measurements, of those, says so."""
    return disturbed > _MOST_DISTURBED * timed


@dataclass(frozen=True)
class Total:
    """Attention in one step, with one backend in all cases.

    stage: the part of a step that it is of; "" for all of it. threads: of its cases, where the same step was
    measured with several numbers; else 0. backend: None for the one to use in each
    case. ms: the median over repetitions of the sum over cases, with its interval (None for too few).
    by_case: the median of each case's part, in ms. missing: cases that are counted but have no time.
    without: in words, what such a step computes beside its cases. over: this total over that of the backends
    to use, of one case that of the case; None for the latter. tied: whether it is not shown to take longer
    than they do.
    """

    backend: str | None
    ms: float
    interval: Interval | None
    by_case: Mapping[str, float]
    stage: str = ""
    threads: int = 0
    missing: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    over: TimeRatio | None = None
    tied: bool = False


def totals(
    chosen: Mapping[str, str],
    times: Times,
    counts: Mapping[str, float],
    stage: str = "",
    threads: int = 0,
    without: tuple[str, ...] = (),
    leads: Sequence[Lead] = (),
) -> tuple[Total, ...]:
    """Return the totals of the backends to use, and of every backend with a time in all cases, the least
    first.

    chosen: the backend to use in each case with a time. counts: calls in one step, by case, all of one stage
    and, unless 0, number of threads; cases without a time are left out. without: as of :class:`Total`. leads:
    of the cases; without them no total of one case is that of its case. Cases of one repetition share
    processes and a moment of the machine, so the sum and its ratio to the least are taken in each repetition,
    and intervals over repetitions.
    """
    missing = tuple(case for case in counts if case not in chosen)
    counts = {case: count for case, count in counts.items() if case in chosen}
    if not counts:
        return ()
    names = {name for repetitions in times.values() for taken in repetitions.values() for name in taken}
    least = sums_of(chosen, times, counts)
    found = [_total(None, chosen, times, counts)]
    found += [_total(name, dict.fromkeys(counts, name), times, counts, least) for name in sorted(names)]
    by_case = {lead.best.case: lead for lead in leads}
    told = [_beside(one, chosen, by_case) for one in found if one is not None]
    ordered = sorted(told, key=lambda one: (one.backend is not None, one.ms))
    return tuple(
        replace(one, stage=stage, threads=threads, missing=missing, without=without) for one in ordered
    )


def partial_totals(
    chosen: Mapping[str, str],
    times: Times,
    counts: Mapping[str, float],
    stage: str = "",
    threads: int = 0,
) -> Iterator[Total]:
    """Yield a total of each backend that has a time in some cases of a step, but not in all.

    In the others the backend to use stands in, so its ratio says what the step loses by this backend alone.
    The arguments are those of :func:`totals`.
    """
    counts = {case: count for case, count in counts.items() if case in chosen}
    least = sums_of(chosen, times, counts)
    cases_of: dict[str, list[str]] = {}
    for case in counts:
        for name in {name for taken in times.get(case, {}).values() for name in taken}:
            cases_of.setdefault(name, []).append(case)
    for name, own in sorted(cases_of.items()):
        if len(own) < len(counts):
            total = _total(name, {**chosen, **dict.fromkeys(own, name)}, times, counts, least)
            if total is not None:
                interval = None if total.over is None else total.over.interval
                tied = interval is None or interval.low <= 1
                yield replace(total, stage=stage, threads=threads, tied=tied)


def _beside(total: Total, chosen: Mapping[str, str], leads: Mapping[str, Lead]) -> Total:
    """Return a total with whether it ties with the backends to use; of one case its ratio is the case's own.

    A backend that may be the fastest in each case ties: the sum of its times then exceeds that of the
    fastest of each case even if no case shows it to be slower.
    """
    if total.over is None or all(chosen[case] == total.backend for case in total.by_case):
        return total
    own = [leads[case] for case in total.by_case if case in leads]
    tied = bool(own) and all(total.backend in lead.candidates for lead in own)
    over = own[0].over.get(total.backend or "") if len(own) == len(total.by_case) == 1 else None
    if over is not None:
        return replace(total, over=over, tied=tied or over.ratio < 1)
    interval = total.over.interval
    return replace(total, tied=tied or (interval is not None and interval.low <= 1))


def saved(
    default: str, chosen: Mapping[str, str], times: Times, counts: Mapping[str, float]
) -> tuple[float, Interval | None]:
    """Return the ms that one step saves where chosen backends replace another, and its interval.

    The interval is over repetitions. default: what they replace. chosen: by case; each has times of both.
    """
    counts = {case: counts[case] for case in chosen}
    before, after = (sums_of(names, times, counts) for names in (dict.fromkeys(chosen, default), chosen))
    apart = [before[index] - after[index] for index in before.keys() & after.keys()]
    return median(apart or [0.0]), of_median(apart)


def _total(
    backend: str | None,
    chosen: Mapping[str, str],
    times: Times,
    counts: Mapping[str, float],
    least: Mapping[int, float] = MappingProxyType({}),
) -> Total | None:
    by_index = sums_of(chosen, times, counts)
    if not by_index:
        return None
    sums = list(by_index.values())
    over = sums_over(by_index, least)
    if least and over is None:
        over = TimeRatio(median(sums) / median(least.values()), None)
    by_case = {
        case: count
        / 1e6
        * median(taken[chosen[case]] for taken in times[case].values() if chosen[case] in taken)
        for case, count in counts.items()
    }
    return Total(backend, median(sums), time_interval(sums), by_case, over=over)


def sums_over(sums: Mapping[int, float], others: Mapping[int, float]) -> TimeRatio | None:
    """Return the ratio of steps to other steps, in the repetitions that have both; None without any."""
    return _ratio([log(sums[index] / others[index]) for index in sums.keys() & others.keys()])


def sums_of(chosen: Mapping[str, str], times: Times, counts: Mapping[str, float]) -> dict[int, float]:
    """Return the ms of one step by repetition, of those in which all cases have a time."""
    repetitions = [
        {index for index, taken in times.get(case, {}).items() if chosen[case] in taken} for case in counts
    ]
    return {
        index: sum(count / 1e6 * times[case][index][chosen[case]] for case, count in counts.items())
        for index in sorted(set.intersection(*repetitions) if repetitions else ())
    }
