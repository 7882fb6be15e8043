"""Scoring the sign test: between identical contenders it fires as often as it must, no more and no less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from math import comb, sqrt
from statistics import mean, stdev

from attnbench.compare.comparison import compare
from attnbench.selftest.bounds import CONFIDENCE, Count
from attnbench.selftest.findings import FALSE_FAILURES, Finding, Outcome, Scored, percent
from attnbench.selftest.parts import Part, Terms
from attnbench.selftest.peers import Peers
from attnbench.selftest.trials import Trial

LEVEL = 0.05
SIMULATED = 4_000
_SEED = 5


def exact_rate(sets: int, level: float = LEVEL) -> float:
    """How often a two-sided sign test of so many values has a p-value of ``level`` at most: its true size."""
    size = 0.0
    for fewer in range(sets // 2 + 1):
        tail = 2 * sum(comb(sets, i) for i in range(fewer + 1)) / 2**sets
        if tail > level:
            break
        size = tail
    return size


def fired(trial: Trial, contenders: Sequence[str], leave_out: bool = True) -> Count:
    """Of all pairs of contenders in a trial, how many differ by the sign test."""
    p_values = [
        found.p_value
        for one, other in combinations(contenders, 2)
        if (found := compare(trial.sets, one, other, leave_out=leave_out)) is not None
    ]
    return Count(sum(p <= LEVEL for p in p_values), len(p_values))


def score_exact(measured: Mapping[Part, Sequence[Trial]], terms: Terms, peers: Peers) -> Scored:
    """How often the sign test fires between identical contenders, against its exact rate.

    All pairs of the contenders of a trial count, and they share contenders; so a case is what counts as
    independent, and the spread of cases gives the interval.
    """
    findings, notes = [], []
    for part, trials in measured.items():
        clusters: dict[str, list[Count]] = {}
        for trial in trials:
            found = fired(trial, part.contenders, terms.leave_out)
            if found.trials:
                clusters.setdefault(trial.cluster, []).append(found)
        findings.append(_finding(part, list(clusters.values()), terms))
        notes.append(
            f"{part.at()}: {sum(map(len, clusters.values()))} trials of {len(part.contenders)} contenders on "
            f"{len(clusters)} cases; all pairs of a trial share contenders, so cases count as independent"
        )
    return Scored(findings=tuple(findings), notes=tuple(notes))


def _finding(part: Part, clusters: Sequence[Sequence[Count]], terms: Terms) -> Finding:
    target = exact_rate(part.sets)
    events = sum(one.events for cluster in clusters for one in cluster)
    trials = sum(one.trials for cluster in clusters for one in cluster)
    what = f"sign test of {part.sets} sets fires at {percent(LEVEL)}, {part.at()}"
    if len(clusters) < 3:
        found = events / trials if trials else None
        return Finding(what, "exactly", target, terms.whole, found, None, None, "not refuted", events, trials)
    rates = [sum(one.events for one in c) / sum(one.trials for one in c) for c in clusters]
    low, high = t_interval(rates, CONFIDENCE)
    least, most = t_interval(rates, 1 - FALSE_FAILURES)
    estimate = events / trials
    groups = sum(map(len, clusters))
    chance = by_chance(estimate, target, len(part.contenders), part.sets, groups)
    refuted = not least <= target <= most and chance < FALSE_FAILURES
    outcome: Outcome = "refuted" if refuted else ("missed" if not low <= target <= high else "not refuted")
    if outcome == "not refuted" and high - low <= target:
        outcome = "met"
    return Finding(
        what=what,
        side="exactly",
        target=target,
        first=terms.whole,
        estimate=estimate,
        low=low,
        high=high,
        outcome=outcome,
        events=events,
        trials=trials,
        effective=float(groups),
        false_failure=FALSE_FAILURES,
    )


def t_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The interval of the mean by Student's t; values are independent, two at least."""
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * stdev(values) / sqrt(len(values))
    return mean(values) - half, mean(values) + half


def by_chance(rate: float, exact: float, contenders: int, sets: int, trials: int) -> float:
    """How often so many trials would give a rate as far from the exact one, by simulation.

    Identical contenders rank in a set in any order with equal chances, whatever the noise, and sets are
    independent: that is all that is simulated.
    """
    import numpy as np

    counts = np.array(_simulated(contenders, sets))
    rng = np.random.default_rng(_SEED)
    pairs = contenders * (contenders - 1) / 2
    rates = rng.choice(counts, size=(SIMULATED, trials)).mean(axis=1) / pairs
    return float((1 + np.sum(np.abs(rates - exact) >= abs(rate - exact) - 1e-12)) / (1 + SIMULATED))


@cache
def _simulated(contenders: int, sets: int) -> tuple[int, ...]:
    """Numbers of pairs that the sign test tells apart, in simulated trials of identical contenders."""
    import numpy as np

    rng = np.random.default_rng(_SEED)
    ranks = rng.random((SIMULATED, sets, contenders)).argsort(axis=2)
    few = _few(sets)
    found = np.zeros(SIMULATED, dtype=np.int64)
    for one, other in combinations(range(contenders), 2):
        above = (ranks[:, :, one] > ranks[:, :, other]).sum(axis=1)
        found += (above <= few) | (above >= sets - few)
    return tuple(int(number) for number in found)


def _few(sets: int) -> int:
    """The most sets that may disagree in a test that fires; -1 where none can fire."""
    few = -1
    while 2 * sum(comb(sets, i) for i in range(few + 2)) / 2**sets <= LEVEL:
        few += 1
    return few
