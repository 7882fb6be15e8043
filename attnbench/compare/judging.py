"""From numbers of two sides to a verdict, and the reason for it."""

from __future__ import annotations

from math import expm1, log, log1p

from attnbench.compare.numbers import LONE_FACTOR, Numbers, apart
from attnbench.stats.ranks import fewest_against, fewest_each
from attnbench.stats.verdict import FALSE_DISCOVERIES, LEVEL
from attnbench.types.compared import Outcome


def percent(share: float) -> str:
    """A share to two digits, whole from 10 on: 2.3 %, 12 %, 120 %."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.2g} %"


def percent_of_log(log_share: float) -> str:
    """How far a ratio lies from 1 by its logarithm, always upwards: 0.1 and -0.1 are 11 %."""
    return percent(expm1(abs(log_share)))


def judged(numbers: Numbers, p_adjusted: float | None, family: int) -> tuple[Outcome, str]:
    """The verdict, and for ``unclear`` the reason.

    p_adjusted: the p-value among all cells, of which family have one. slower, faster: the p-value is at most
    ``LEVEL``, the adjusted one at most ``FALSE_DISCOVERIES``, and the ratio beyond ``least_told``. same: the
    whole interval lies within delta, and so do spread and drift. Of lone processes: the ratio beyond a factor
    of two, and the middle halves of their calls apart.
    """
    outcome: Outcome = "slower" if numbers.log_ratio > 0 else "faster"
    beyond = abs(numbers.log_ratio) > numbers.least_log
    if numbers.lone:
        told = beyond and apart(numbers.base, numbers.new)
        return (outcome, "") if told else ("unclear", _why_lone(numbers))
    p_value = numbers.p_value
    assert p_value is not None
    assert p_adjusted is not None
    if _same(numbers):
        return "same", ""
    if beyond and p_value <= LEVEL and p_adjusted <= FALSE_DISCOVERIES:
        return outcome, ""
    return "unclear", _why(numbers, p_value, p_adjusted, family)


def _same(numbers: Numbers) -> bool:
    most = log1p(numbers.delta)
    interval = numbers.interval
    if interval is None or not -most <= interval.low <= interval.high <= most:
        return False
    return max(numbers.spreads) <= most and numbers.drift.most <= most


def _why_lone(numbers: Numbers) -> str:
    units = "run" if numbers.base.unit == "run" else "process"
    needed = fewest_each(LEVEL)
    more = f"{needed} {'runs' if units == 'run' else 'processes'} a side would tell finer"
    if abs(numbers.log_ratio) > numbers.least_log:
        return f"one {units} on a side, and its calls overlap those of the other: {more}"
    if numbers.least_log > log(LONE_FACTOR):
        least = percent(numbers.least_told)
        return f"one {units} on a side, and less than {least} can't be told: {_causes(numbers)}; {more}"
    return f"one {units} on a side, so that nothing within a factor of {LONE_FACTOR:g} can be told: {more}"


def _why(numbers: Numbers, p_value: float, p_adjusted: float, family: int) -> str:
    short = _too_few(numbers)
    if short:
        return short
    least = percent(numbers.least_told)
    causes = _causes(numbers)
    change = percent_of_log(numbers.log_ratio)
    if abs(numbers.log_ratio) > numbers.least_log and p_value <= LEVEL:
        return (
            f"could be chance among {family} comparisons (adjusted p {p_adjusted:.2g}, "
            f"{FALSE_DISCOVERIES:g} is needed): compare fewer cells, or more sets"
        )
    if numbers.least_log > log1p(numbers.delta):
        differs = f"differs by {change}, and " if p_value <= LEVEL else ""
        return f"{differs}less than {least} can't be told: {causes}"
    if p_value <= LEVEL:
        return (
            f"differs by {change}, about the least effect of {percent(numbers.delta)}: give another --delta"
        )
    return (
        f"{_units(numbers)} overlap (p {p_value:.2g}, {LEVEL:g} is needed), and the interval is wider than "
        f"{percent(numbers.delta)}: more sets on both sides"
    )


def _too_few(numbers: Numbers) -> str:
    """Where no p-value could be small enough: how many units would be needed; "" where they are enough."""
    before, after = len(numbers.base.logs), len(numbers.new.logs)
    if fewest_against(before, LEVEL) <= after:
        return ""
    needed = fewest_each(LEVEL)
    more = [
        f"{min(needed, fewest_against(other, LEVEL)) - there} more of {side}"
        for side, there, other in (("base", before, after), ("new", after, before))
        if there < min(needed, fewest_against(other, LEVEL))
    ]
    return (
        f"{before} {_units(numbers, before)} in base and {after} in new, {needed} a side are needed: "
        + " and ".join(more)
    )


def _units(numbers: Numbers, count: int = 2) -> str:
    if numbers.base.unit == "run":
        return "run" if count == 1 else "runs"
    return "process" if count == 1 else "processes"


def _causes(numbers: Numbers) -> str:
    """What makes small effects untold, the parts with their size."""
    before, after = map(percent_of_log, numbers.spreads)
    parts = [f"{_units(numbers)} of base differ by {before}, those of new by {after}"]
    if numbers.drift.beside is not None and numbers.drift.beside >= (numbers.drift.reference or 0.0):
        parts.append(f"the other backends of the case moved by {percent_of_log(numbers.drift.beside)}")
    elif numbers.drift.reference is not None:
        parts.append(f"the machine's reference calls moved by {percent_of_log(numbers.drift.reference)}")
    return ", and ".join(parts)
