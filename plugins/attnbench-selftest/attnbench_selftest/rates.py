"""Rates from counts: bounds, the effect of cells that are not independent, and the outcome of each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONFIDENCE = 0.95
"""The confidence of each one-sided bound that is printed."""

FALSE_FAILURES = 0.01
"""How often, at most, a command refutes any of its targets though a build meets all of them exactly."""

Side = Literal["at most", "at least"]
Outcome = Literal["met", "not refuted", "missed", "refuted"]
"""met: the bound shows it. refuted: the data are next to impossible for a build that meets the target. In
between, by the estimate: on the right side (not refuted) or on the wrong one (missed; more trials decide)."""


@dataclass(frozen=True)
class Count:
    """``events`` in ``trials``, of one cluster."""

    events: int
    trials: int


@dataclass(frozen=True)
class Finding:
    """One claim about a rate, and what the data say.

    first: whether refuting it fails the command. low, high: one-sided 95 % bounds. effective: as how many
    independent trials the trials count. false_failure: the chance that the claim is refuted for a build that
    meets it exactly. peers: the same rate by other tools' rules.
    """

    what: str
    side: Side
    target: float
    first: bool
    estimate: float | None
    low: float | None
    high: float | None
    outcome: Outcome
    events: int = 0
    trials: int = 0
    effective: float = 0.0
    false_failure: float = 0.0
    peers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Effect:
    """A planted slowdown: its nominal size, and what it came to over all repetitions, with a 95 %
    interval."""

    what: str
    nominal: float
    realised: float
    low: float | None
    high: float | None
    repetitions: int


@dataclass(frozen=True)
class Scored:
    """All that one command found."""

    findings: tuple[Finding, ...]
    effects: tuple[Effect, ...] = ()


def lower_bound(events: float, trials: float, confidence: float = CONFIDENCE) -> float:
    """The exact one-sided lower bound of a rate; trials may be fractional.

    Source: Clopper and Pearson, Biometrika 26 (1934), 404.
    """
    from scipy.special import betaincinv

    return 0.0 if events <= 0 else float(betaincinv(events, trials - events + 1, 1 - confidence))


def upper_bound(events: float, trials: float, confidence: float = CONFIDENCE) -> float:
    """The exact one-sided upper bound of a rate."""
    return 1 - lower_bound(trials - events, trials, confidence)


def design_effect(clusters: Sequence[Count]) -> float:
    """How many trials in clusters count for one that is independent of all others; 1 at least.

    The variance of the rate between clusters over the variance of as many independent trials. 1 where the
    rate is 0 or 1 or there is one cluster, which give no estimate. Source: Kish, Survey Sampling (1965), 5.4;
    for bounds Korn and Graubard, Survey Methodology 24 (1998), 193.
    """
    trials = sum(one.trials for one in clusters)
    events = sum(one.events for one in clusters)
    if len(clusters) < 2 or events in (0, trials):
        return 1.0
    rate = events / trials
    apart = sum((one.events - rate * one.trials) ** 2 for one in clusters)
    between = len(clusters) / (len(clusters) - 1) * apart / trials**2
    return max(1.0, between / (rate * (1 - rate) / trials))


def shared_baseline_effect(cells: int, repetitions: int) -> float:
    """The design effect of false alarms of ``cells`` identical candidates against one identical baseline.

    For events too rare to estimate it from. Of a baseline and two candidates, all alike, the baseline is the
    fastest in a third of the repetitions and faster than one of them in half. So n repetitions all agree for
    one with chance 2^-n and for both with 3^-n; the correlation follows, whatever the noise.
    """
    one, both = 2.0**-repetitions, 3.0**-repetitions
    return 1 + (cells - 1) * (both - one**2) / (one - one**2)


def false_failure(side: Side, target: float, trials: float, level: float) -> float:
    """The chance that a build whose rate is exactly the target is refuted at ``level``.

    Counts are whole, so it is less than ``level``. trials: independent ones; rounded.
    """
    from scipy.special import bdtrc

    count = round(trials)
    wrong = target if side == "at most" else 1 - target
    tails = (float(bdtrc(events - 1, count, wrong)) for events in range(1, count + 1))
    return next((tail for tail in tails if tail < level), 0.0)


def rate(
    what: str,
    side: Side,
    target: float,
    clusters: Sequence[Count],
    *,
    first: bool,
    claims: int,
    effect: float = 1.0,
    peers: Mapping[str, float] | None = None,
) -> Finding:
    """Judge a claim about a rate from counts by cluster.

    effect: the design effect at least; the data's own is used where it is larger. claims: the number of
    claims that may fail the command; each is refuted at its share of :data:`FALSE_FAILURES`.
    """
    peers = peers or {}
    events, trials = sum(one.events for one in clusters), sum(one.trials for one in clusters)
    if not trials:
        return Finding(what, side, target, first, None, None, None, "not refuted", peers=peers)
    effective = trials / max(effect, design_effect(clusters))
    found, level = events / trials, FALSE_FAILURES / claims
    counted = found * effective, effective
    low, high = lower_bound(*counted), upper_bound(*counted)
    if side == "at most":
        shown, right = high <= target, found <= target
        refuted = lower_bound(*counted, 1 - level) > target
    else:
        shown, right = low >= target, found >= target
        refuted = upper_bound(*counted, 1 - level) < target
    outcome: Outcome = "met" if shown else "refuted" if refuted else "not refuted" if right else "missed"
    chance = false_failure(side, target, effective, level)
    return Finding(
        what, side, target, first, found, low, high, outcome, events, trials, effective, chance, peers
    )


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where a first target is refuted, else 0."""
    return int(any(one.first and one.outcome == "refuted" for one in findings))


def last_line(command: str, findings: Sequence[Finding]) -> str:
    """The verdict of a whole command in one line."""
    first = [one for one in findings if one.first]
    refuted = [one for one in first if one.outcome == "refuted"]
    if refuted:
        values = "; ".join(f"{one.what}: {percent(one.estimate)}, not {target_text(one)}" for one in refuted)
        often = percent(sum(one.false_failure for one in first))
        return f"selftest {command}: REFUTED: {values} (a build that meets it exactly fails {often} of times)"
    words: dict[Outcome, str] = {
        "met": "shown to be met",
        "not refuted": "neither shown nor refuted",
        "missed": "missed but not refuted",
    }
    counts = {word: sum(one.outcome == word for one in first) for word in words}
    text = ", ".join(f"{counts[word]} {words[word]}" for word in words if counts[word])
    return f"selftest {command}: nothing refuted; of {len(first)} targets {text or 'none was measured'}"


def target_text(finding: Finding) -> str:
    """A finding's target: ≤ 0.2 %."""
    return f"{'≤' if finding.side == 'at most' else '≥'} {percent(finding.target)}"


def percent(share: float | None) -> str:
    """A share as 0.2 %, 3.91 %, 100 %; empty for None."""
    return "" if share is None else f"{100 * share:.3g} %"
