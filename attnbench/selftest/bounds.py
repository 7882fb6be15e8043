"""How well a rate is known from counts, how many trials show one, and how often a right build would fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CONFIDENCE = 0.95
"""Of each one-sided bound that is printed."""

Side = Literal["at most", "at least"]


@dataclass(frozen=True)
class Count:
    """``events`` in ``trials``; of one cluster, or of all."""

    events: int
    trials: int


def lower_bound(events: float, trials: float, confidence: float = CONFIDENCE) -> float:
    """The exact one-sided lower bound of a rate; also for numbers of trials that aren't whole.

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
    rate is 0 or 1, or there is one cluster: these say nothing of it. Source: Kish, Survey Sampling (1965),
    5.4; for bounds Korn and Graubard, Survey Methodology 24 (1998), 193.
    """
    trials = sum(one.trials for one in clusters)
    events = sum(one.events for one in clusters)
    if len(clusters) < 2 or events in (0, trials):
        return 1.0
    rate = events / trials
    apart = sum((one.events - rate * one.trials) ** 2 for one in clusters)
    between = len(clusters) / (len(clusters) - 1) * apart / trials**2
    return max(1.0, between / (rate * (1 - rate) / trials))


def shared_baseline_effect(cells: int, sets: int) -> float:
    """The design effect of false alarms of ``cells`` identical contenders against one identical baseline.

    For events too rare to estimate it from. Of b and two contenders, all alike, b is the fastest in a third
    of the sets and faster than one of them in half, so of n sets all agree for one with chance 2^-n and for
    both with 3^-n; the correlation follows, whatever the noise.
    """
    one, both = 2.0**-sets, 3.0**-sets
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


def trials_to_show(side: Side, target: float, rate: float, chance: float = 0.99) -> int:
    """How many trials show the target with ``chance``, by a one-sided bound, for a build of that ``rate``.

    The smallest number found by allowing 0, 1, 2 ... wrong ones; ``rate`` must be better than ``target``.
    """
    from scipy.special import bdtr

    allowed, wrong = (target, rate) if side == "at most" else (1 - target, 1 - rate)
    if not 0 <= wrong < allowed < 1:
        raise ValueError(f"a rate of {rate} can't show {side} {target}")
    events = 0
    while True:
        trials = _fewest_showing(events, allowed)
        if float(bdtr(events, trials, wrong)) >= chance:
            return trials
        events += 1


def _fewest_showing(events: int, allowed: float) -> int:
    """The fewest trials of which so many wrong ones show that the rate is at most ``allowed``."""
    from scipy.special import bdtr

    low = high = events + 1
    while bdtr(events, high, allowed) > 1 - CONFIDENCE:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if bdtr(events, middle, allowed) > 1 - CONFIDENCE:
            low = middle + 1
        else:
            high = middle
    return low
