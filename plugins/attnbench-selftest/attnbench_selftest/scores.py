"""Scores of identical candidates (``aa``) and of planted slowdowns (``power``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import exp
from statistics import median

from attnbench.stats.pairs import compare
from attnbench.stats.tests import median_interval
from attnbench.types.extensions import Word
from attnbench_selftest.cells import (
    Cell,
    Peers,
    adjusted_words,
    cells_of,
    count,
    families,
    peer_rates,
)
from attnbench_selftest.measure import Trial
from attnbench_selftest.plan import (
    FAMILIES_AT_MOST,
    FAMILY,
    FOUND_AT_LEAST,
    SAME_AT_LEAST,
    SLOWER_AT_MOST,
    Part,
)
from attnbench_selftest.rates import Count, Effect, Finding, Scored, rate, shared_baseline_effect

Measured = Mapping[Part, Sequence[Trial]]


def score_aa(measured: Measured, as_planned: bool, peers: Peers) -> Scored:
    """How often identical candidates are called slower, and proved the same.

    as_planned: whether budgets and repetitions are those of the targets; only then may a build fail to prove
    candidates the same. False alarms are counted on verdicts of each cell alone, without the adjustment for
    a run's other cells: the most there can be.
    """
    claims = 2 + (sum(not part.slow for part in measured) if as_planned else 0)
    same: list[Finding] = []
    every: list[Cell] = []
    for part, trials in measured.items():
        cells = cells_of(trials, part.candidates[1:], part.candidates[0], peers)
        every += cells
        if part.slow:
            continue  # nine samples seldom prove a difference of less than 2 %
        counts = count(cells, lambda cell: cell.alone == "same")
        what = f"proved the same, {part}"
        same.append(rate(what, "at least", SAME_AT_LEAST, counts, first=as_planned, claims=claims))
    effect = max(
        (shared_baseline_effect(len(p.candidates) - 1, p.repetitions) for p in measured), default=1.0
    )

    def alarms(word: Word) -> Finding:
        return rate(
            f"identical code called {word}, of cells",
            "at most",
            SLOWER_AT_MOST,
            count(every, lambda cell: cell.alone == word),
            first=word == "slower",
            claims=claims,
            effect=effect,
            peers=peer_rates([[cell] for cell in every], word),
        )

    runs = families(every)
    any_slower = rate(
        f"any called slower, of runs of {FAMILY} cells",
        "at most",
        FAMILIES_AT_MOST,
        [Count(int("slower" in adjusted_words(run)), 1) for run in runs],
        first=True,
        claims=claims,
        peers=peer_rates(runs, "slower"),
    )
    return Scored((alarms("slower"), any_slower, alarms("faster"), *same))


def score_power(measured: Measured, as_planned: bool, peers: Peers) -> Scored:
    """How often planted slowdowns are called slower, each as the only cell that differs in a run."""

    def found(part: Part, trials: Sequence[Trial]) -> Finding:
        cells = cells_of(trials, part.candidates[1:], part.candidates[0], peers)
        return rate(
            f"+{part.percent} % found among {part.family} cells, {part}",
            "at least",
            FOUND_AT_LEAST[part.percent],
            count(cells, lambda cell: cell.among(part.family) == "slower"),
            first=as_planned,
            claims=len(measured),
            peers=peer_rates([[cell] for cell in cells], "slower"),
        )

    effects = [effect for part, trials in measured.items() for effect in _effect(part, trials)]
    return Scored(tuple(found(part, trials) for part, trials in measured.items()), tuple(effects))


def _effect(part: Part, trials: Sequence[Trial]) -> list[Effect]:
    """The realised slowdown: the median over all repetitions, and its interval over cases.

    Each case has templates of its own, so repetitions of one case are not independent values.
    """
    baseline, *slower = part.candidates
    by_case: list[float] = []
    every: list[float] = []
    for _, group in groupby(trials, key=lambda trial: trial.cluster):
        repetitions = [line for trial in group for line in trial.repetitions]
        for name in slower:
            found = compare(repetitions, name, baseline)
            if found is not None:
                every += found.repetition_log_ratios
                by_case.append(median(found.repetition_log_ratios))
    if not every:
        return []
    interval = median_interval(by_case)
    low, high = (exp(interval.low) - 1, exp(interval.high) - 1) if interval else (None, None)
    return [Effect(str(part), part.percent / 100, exp(median(every)) - 1, low, high, len(every))]
