"""What the self-test says: each claim with its estimate, its bound, and whether the data bear it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from attnbench.selftest.bounds import Count, Side, design_effect, false_failure, lower_bound, upper_bound

Outcome = Literal["met", "not refuted", "missed", "refuted"]
"""met: the bound shows it. refuted: the data are next to impossible for a build that meets it. In between, by
the estimate: on the right side (not refuted), or on the wrong one (missed; more trials would tell)."""

FALSE_FAILURES = 0.01
"""How often, at most, a command refutes any of its targets though a build meets all of them exactly."""


@dataclass(frozen=True)
class Finding:
    """One claim and what was found.

    what: the claim's subject in words. side, target: what is claimed of it. first: whether refuting it
    fails the command; the others are aims beyond. estimate, low, high: with one-sided 95 % bounds, where
    there are any (of a claim with two sides, a 95 % interval); shares, or ns where ``unit`` says so. events
    in trials, where it is a rate; effective: as how many independent trials they count. false_failure: the
    chance that this claim is refuted for a build that meets it exactly. peers: the same rate of other tools'
    rules.
    """

    what: str
    side: Side | Literal["exactly"]
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
    unit: Literal["share", "ns"] = "share"
    peers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Effect:
    """A planted slowdown: what it was meant to be, and what it came to, pooled over all sets."""

    what: str
    nominal: float
    realised: float
    low: float | None
    high: float | None
    sets: int


@dataclass(frozen=True)
class Scored:
    """All that one command found. notes: what a reader should know, in words."""

    findings: tuple[Finding, ...]
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()


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
    """A claim about a rate, from counts by cluster.

    effect: the design effect at least; the data's own counts where it is larger. claims: among how many that
    may fail the command this one stands; each is refuted at its part of :data:`FALSE_FAILURES`.
    """
    events, trials = sum(one.events for one in clusters), sum(one.trials for one in clusters)
    if not trials:
        return Finding(what, side, target, first, None, None, None, "not refuted", peers=peers or {})
    effective = trials / max(effect, design_effect(clusters))
    found = events / trials
    level = FALSE_FAILURES / claims
    low, high = lower_bound(found * effective, effective), upper_bound(found * effective, effective)
    outcome: Outcome
    if side == "at most":
        refuted = lower_bound(found * effective, effective, 1 - level) > target
        outcome = _between(high <= target, refuted, found <= target)
    else:
        refuted = upper_bound(found * effective, effective, 1 - level) < target
        outcome = _between(low >= target, refuted, found >= target)
    return Finding(
        what=what,
        side=side,
        target=target,
        first=first,
        estimate=found,
        low=low,
        high=high,
        outcome=outcome,
        events=events,
        trials=trials,
        effective=effective,
        false_failure=false_failure(side, target, effective, level),
        peers=peers or {},
    )


def _between(shown: bool, refuted: bool, right: bool) -> Outcome:
    if shown:
        return "met"
    if refuted:
        return "refuted"
    return "not refuted" if right else "missed"


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where a first target is refuted, else 0."""
    return int(any(one.first and one.outcome == "refuted" for one in findings))


def last_line(command: str, findings: Sequence[Finding]) -> str:
    """The verdict of a whole command in one line."""
    first = [one for one in findings if one.first]
    refuted = [one for one in first if one.outcome == "refuted"]
    chance = sum(one.false_failure for one in first)
    if refuted:
        said = "; ".join(f"{one.what}: {value(one, one.estimate)}, not {target(one)}" for one in refuted)
        often = f"a build that meets it exactly fails {percent(chance)} of times"
        return f"selftest {command}: REFUTED: {said} ({often})"
    words: dict[Outcome, str] = {
        "met": "shown to be met",
        "not refuted": "neither shown nor refuted",
        "missed": "missed but not refuted",
    }
    counts = {word: sum(one.outcome == word for one in first) for word in words}
    said = ", ".join(f"{counts[word]} {words[word]}" for word in words if counts[word])
    return f"selftest {command}: nothing refuted; of {len(first)} targets {said or 'none was measured'}"


def value(finding: Finding, number: float | None) -> str:
    """A number of a finding as text."""
    if number is None:
        return ""
    return f"{number:.3g} ns" if finding.unit == "ns" else percent(number)


def target(finding: Finding) -> str:
    """A finding's target as text."""
    sign = {"at most": "≤", "at least": "≥", "exactly": "="}[finding.side]
    return f"{sign} {value(finding, finding.target)}"


def percent(share: float) -> str:
    """A share as 0.2 %, 3.91 %, 100 %."""
    return f"{100 * share:.3g} %"
