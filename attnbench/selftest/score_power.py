"""Scoring planted slowdowns: how often they are found, and what they came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import exp
from statistics import median

from attnbench.compare.comparison import compare
from attnbench.compare.interval import median_interval
from attnbench.selftest.cells import FAMILY, among, cells_of, count, peer_rates
from attnbench.selftest.findings import Effect, Finding, Scored, rate
from attnbench.selftest.parts import Part, Terms
from attnbench.selftest.peers import Peers
from attnbench.selftest.trials import Trial, kept_share

FOUND_AT_LEAST = {3: 0.95, 5: 0.99}
"""By planted slowdown in percent."""

PARTS_OF_BUDGET = (1.0, 0.25)


def score_power(measured: Mapping[Part, Sequence[Trial]], terms: Terms, peers: Peers) -> Scored:
    """How often planted slowdowns are called slower, within the whole budget and a quarter of it.

    The verdict is that of the only cell that differs in a run of 40: others that differ would make it easier.
    """
    findings: list[Finding] = []
    effects: list[Effect] = []
    claims = max(1, len(measured))
    for part, trials in measured.items():
        baseline, *slower = part.contenders
        for share in PARTS_OF_BUDGET:
            cells = cells_of(trials, slower, baseline, part=share, leave_out=terms.leave_out, peers=peers)
            findings.append(
                rate(
                    f"+{part.percent} % found, {part.at(kept_share(trials, share))}",
                    "at least",
                    FOUND_AT_LEAST[part.percent],
                    count(cells, lambda cell: among(cell, terms.delta) == "slower"),
                    first=terms.as_planned and share == 1,
                    claims=claims,
                    peers=peer_rates(cells, "slower"),
                )
            )
        effects += _effect(part, trials, terms.leave_out)
    note = f"found: called slower as the only one that differs in a run of {FAMILY} cells"
    return Scored(findings=tuple(findings), effects=tuple(effects), notes=(note,))


def _effect(part: Part, trials: Sequence[Trial], leave_out: bool) -> list[Effect]:
    """What a part's slowdowns came to: the median over all sets, and its interval over cases.

    Each case calibrates anew, so that sets of one case are no independent values.
    """
    baseline, *slower = part.contenders
    by_case: list[float] = []
    every: list[float] = []
    for _, group in groupby(trials, key=lambda trial: trial.cluster):
        sets = [line for trial in group for line in trial.sets]
        for name in slower:
            found = compare(sets, name, baseline, leave_out=leave_out)
            if found is not None:
                every += found.set_log_ratios
                by_case.append(median(found.set_log_ratios))
    if not every:
        return []
    interval = median_interval(by_case)
    return [
        Effect(
            what=part.at(),
            nominal=part.percent / 100,
            realised=exp(median(every)) - 1,
            low=exp(interval.low) - 1 if interval else None,
            high=exp(interval.high) - 1 if interval else None,
            sets=len(every),
        )
    ]
