"""One stored run against another: the ratio of medians, and the resolution of two runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, expm1, isfinite, log, log1p
from statistics import median, quantiles

from attnbench.stats.tests import Interval
from attnbench.stats.verdict import word_of
from attnbench.types.compared import FAR_COPY
from attnbench.types.extensions import Word

MARGIN = 1.25
"""A factor on the spreads of both sides. Of 400,000 simulated pairs of runs of identical code, with nine
repetitions each, none was called different. If three servers differed twice as much as their forks, 3 in
10,000 were, and 15 in 10,000 without the margin (``tests/compare/test_unpaired.py`` repeats this)."""

FEWEST = 6
"""Fewer repetitions on a side show their spread too poorly: see ``FEW_FACTOR``."""

FEW_FACTOR = 2.0
"""With few repetitions only a ratio beyond this is a difference."""

ONE_PARENT = 0.05
"""The least spread, as a logarithm, of repetitions forked from one prepared process: they share its memory
layout, and another process may be slower than all of them."""

UNLIKE_FACTOR = 2.0
"""Where one side had more calls in a row than the other, only a ratio beyond this is a difference: the first
calls after another process are slower. Identical code took 1.27 times as long in samples of one call after
one untimed call as in samples of seven after four, and 1.6 times as long without the untimed call."""

UNLIKE_BELOW_NS = 5e6
"""Of longer calls the first is hardly slower."""

ENOUGH_BESIDE = 3
"""At least this many other backends of a case show the drift of the machine. Reference calls alone do not: in
two runs ten unchanged backends differed by some 28 %, and no reference call by more than 9 %."""

SETTLED_BY = 4.0
"""Where fewer backends all moved in one direction, it was their code only if no reference call moved by a
quarter of that: in the runs of ``ENOUGH_BESIDE`` the unchanged backends moved three times as far."""

OWN_CACHE_BYTES = 4 * 2**20
"""A cell that needs less memory mostly stays in the caches of its core, of 1 to 2 MiB, so that what cores
share hardly changes its time."""


@dataclass(frozen=True)
class SideTimes:
    """The repetitions of one side.

    times_ns: the median time per call of each repetition, or of each run if the side has several. calls_ns:
    for a lone repetition the shortest call, the quartiles and the longest; () if unknown. parents: for each
    repetition the number of the process that it was forked from; () if unknown. in_a_row: the calls of a
    sample, and the untimed calls before it; () if unknown.
    """

    times_ns: tuple[float, ...]
    calls_ns: tuple[float, ...] = ()
    parents: tuple[int, ...] = ()
    in_a_row: tuple[int, ...] = ()

    def spread(self, *, whole: bool) -> float:
        """Return the difference between repetitions, as a logarithm of 0 or more.

        It is the range of the middle 80 % (``whole``: of all), or the largest difference between the medians
        of the forks of two parents, if that is more. For a lone repetition it is the distance between the
        quartiles of its calls, or ``FEW_FACTOR`` if these are unknown.
        """
        logs = list(map(log, self.times_ns))
        if len(logs) == 1:
            known = len(self.calls_ns) == 5
            return log(self.calls_ns[3] / self.calls_ns[1]) if known else log(FEW_FACTOR)
        ranked = sorted(logs) if whole else quantiles(logs, n=10, method="inclusive")
        families: dict[int, list[float]] = {}
        if len(self.parents) == len(logs):
            for parent, value in zip(self.parents, logs, strict=True):
                families.setdefault(parent, []).append(value)
        medians = [median(values) for values in families.values()] or [0.0]
        between = max(medians) - min(medians)
        return max(ranked[-1] - ranked[0], between, ONE_PARENT if len(families) == 1 else 0.0)


@dataclass(frozen=True)
class Drift:
    """The change of the machine between two runs of a case, as logarithms of 0 or more.

    reference: the median over the machine's reference calls. beside: the median over the other backends of
    the case. None if there are none, or too few. together: the change that all backends of the case share,
    where they are too few to tell the machine from the code; None elsewhere.
    """

    reference: float | None = None
    beside: float | None = None
    together: float | None = None

    @property
    def most(self) -> float:
        """The largest of them."""
        return max(self.reference or 0.0, self.beside or 0.0, self.together or 0.0)


def moved_calls(
    base: Mapping[str, Collection[float]], new: Mapping[str, Collection[float]]
) -> dict[str, float]:
    """Return the change of each reference call that both sides have. base, new: the times of each, ns."""
    before, after = _typical(base), _typical(new)
    return {name: abs(log(after[name] / before[name])) for name in before.keys() & after.keys()}


def reference_drift(moved: Mapping[str, float], *, far: bool = False) -> float | None:
    """Return the change of the median reference call; None if there is none.

    The median counts, because a single call may be wrong: an empty call of 60 ns took 95 ns in one case of a
    run. far: for a cell that leaves a core's own caches; there the change of the far copy counts if it is
    larger.
    """
    if not moved:
        return None
    return max(median(moved.values()), moved.get(FAR_COPY, 0.0) if far else 0.0)


def _typical(calls: Mapping[str, Collection[float]]) -> dict[str, float]:
    sound = {name: [ns for ns in times if isfinite(ns) and ns > 0] for name, times in calls.items()}
    return {name: median(times) for name, times in sound.items() if times}


def drift_beside(log_ratios: Collection[float]) -> float | None:
    """Return the change of the other backends of a case; None for fewer than ``ENOUGH_BESIDE``."""
    return abs(median(log_ratios)) if len(log_ratios) >= ENOUGH_BESIDE else None


def drift_together(log_ratios: Collection[float], moved: Collection[float]) -> float | None:
    """Return the change that few backends of a case share: of all in one direction, the smallest.

    moved: the change of each reference call. None for more than ``ENOUGH_BESIDE`` backends, where the others
    show the drift; where the changes differ in direction; where the reference calls settle that it was not
    the machine (``SETTLED_BY``); and for a lone backend without reference calls.
    """
    least, most = min(log_ratios), max(log_ratios)
    if len(log_ratios) > ENOUGH_BESIDE or least <= 0 <= most:
        return None
    shared = min(abs(least), abs(most))
    settled = shared > SETTLED_BY * max(moved) if moved else len(log_ratios) == 1
    return None if settled else shared


def log_ratio(base: SideTimes, new: SideTimes) -> float:
    """Return the logarithm of the ratio of medians, new over base."""
    return log(median(new.times_ns) / median(base.times_ns))


def called_unlike(base: SideTimes, new: SideTimes) -> bool:
    """Return whether one side had far more calls in a row, of which the first are slower.

    After two or more untimed calls their number makes no difference.
    """
    if not (base.in_a_row and new.in_a_row) or median(base.times_ns) > UNLIKE_BELOW_NS:
        return False
    (calls, warm), (other_calls, other_warm) = base.in_a_row, new.in_a_row
    fewest_warm, most_warm = sorted((warm, other_warm))
    fewest, most = sorted((calls, other_calls))
    return fewest_warm == 0 < most_warm or (fewest_warm < 2 and most >= 2 * fewest)


@dataclass(frozen=True)
class Unpaired:
    """One side over the other.

    ratio: of medians, new over base. interval: the ratio with the resolution on either side; None for few
    repetitions. resolution: the smallest difference that counts, as a share (0.1 for 10 %); None if both are
    one measurement. word: the verdict. reason: the cause of ``unclear``.
    """

    ratio: float
    interval: Interval | None
    resolution: float | None
    word: Word
    reason: str = ""


IDENTICAL = Unpaired(1.0, Interval(1.0, 1.0, 1.0), None, "same")
"""A measurement compared with itself."""


def compare_unpaired(base: SideTimes, new: SideTimes, drift: Drift, delta: float) -> Unpaired:
    """Compare two sides whose repetitions were measured in different runs; delta: the least effect, a share.

    The resolution is the difference that two runs of one machine may have for other reasons than the code.
    The median of a side may be wrong by as much as its own repetitions differ, in opposite directions on the
    two sides, and the machine may have changed. So the resolution is ``MARGIN`` times the sum of the two
    spreads, plus the drift. All repetitions of a run share a moment. If no other backends show its change,
    the whole range of the repetitions counts as the spread. With fewer than ``FEWEST`` repetitions on a side
    the resolution is at least ``FEW_FACTOR``, and ``UNLIKE_FACTOR`` if :func:`called_unlike`.

    slower, faster: the ratio is beyond the resolution and ``delta``. same: the whole interval is within
    ``delta``. unclear: all else.
    """
    logs = log_ratio(base, new)
    spreads = [side.spread(whole=drift.beside is None) for side in (base, new)]
    far = MARGIN * sum(spreads) + drift.most
    fewest = min(len(base.times_ns), len(new.times_ns))
    interval = None
    unlike = called_unlike(base, new)
    if unlike:
        far = max(far, log(UNLIKE_FACTOR))
    if fewest < FEWEST:
        far = max(far, log(FEW_FACTOR))
    else:
        interval = Interval(exp(logs - far), exp(logs + far), 1.0)
    low, high = (interval.low, interval.high) if interval else (None, None)
    word = word_of(exp(logs), low, high, delta, sure=abs(logs) > far)
    reason = ""
    if word == "unclear" and far <= log1p(delta):
        reason = f"the difference is close to --delta ({percent(delta)}): give another"
    elif word == "unclear":
        causes = _causes(spreads, drift, fewest)
        if unlike:
            before, after = sum(base.in_a_row), sum(new.in_a_row)
            causes = f"samples had {before} and {after} calls in a row, and {causes}"
        reason = f"less than {percent(expm1(far))} can't be detected: {causes}"
    return Unpaired(exp(logs), interval, expm1(max(far, log1p(delta))), word, reason)


def _causes(spreads: Sequence[float], drift: Drift, fewest: int) -> str:
    """List the parts of the resolution with their sizes."""
    before, after = (percent(expm1(spread)) for spread in spreads)
    parts = [f"repetitions of base differ by {before}, those of new by {after}"]
    if drift.together is not None and drift.together >= (drift.reference or 0.0):
        moved = percent(expm1(drift.together))
        parts.append(
            f"so few backends, which all moved by {moved} or more, don't tell the machine from the code"
        )
    elif drift.beside is not None and drift.beside >= (drift.reference or 0.0):
        parts.append(f"the other backends of the case moved by {percent(expm1(drift.beside))}")
    elif drift.reference is not None:
        parts.append(f"the machine's reference calls moved by {percent(expm1(drift.reference))}")
    if fewest < FEWEST:
        parts.append(f"a side has {fewest} of the {FEWEST} repetitions that a finer verdict needs")
    return ", and ".join(parts)


def percent(share: float) -> str:
    """Format a share that times differ by, with two digits: 2.3 %, 12 %, 400 %, a factor of 21."""
    if share >= 10:
        return f"a factor of {float(f'{1 + share:.2g}'):,.0f}"
    return f"{float(f'{100 * share:.2g}'):,g} %"
