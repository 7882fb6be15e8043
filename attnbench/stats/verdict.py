"""From ratios, intervals and p-values to words, and the one early look of a live comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Literal

from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.tests import LEVEL, SIGN_TEST_FROM, fewest_repetitions, median_interval
from attnbench.types.compared import BASE, HEAD, SIDES, sided
from attnbench.types.extensions import Word
from attnbench.types.record import Record, RepetitionLine
from attnbench.types.words import count_of

FALSE_DISCOVERIES = 0.05
"""The allowed share of false ones among all reported differences (Benjamini and Hochberg)."""

DELTA = 0.02
"""The least effect that counts by default, as a share."""


Hint = Literal["", "few repetitions", "chance", "small"]
"""Few repetitions: fewer than the sign test needs. Chance: by the p-value, or among many comparisons. Small:
near the least effect."""


@dataclass(frozen=True)
class Verdict:
    """A verdict on a ratio.

    word: for example ``slower`` than the baseline. p_adjusted: after Benjamini and Hochberg. reason: for
    ``unclear`` the cause and what to do; "" otherwise. hint: a word for the cause where the interval leaves
    out 1 and the verdict is still ``unclear``; "" otherwise.
    """

    word: Word
    p_adjusted: float | None
    reason: str
    hint: Hint = ""


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values in the order given: the false discovery rate at which each would be accepted.

    The i-th smallest of m is the least over j >= i of p_j m / j, at most 1.
    Source: Benjamini and Hochberg, Journal of the Royal Statistical Society B 57 (1995), 289.
    """
    m = len(p_values)
    adjusted = [1.0] * m
    least = 1.0
    for rank, i in zip(
        range(m, 0, -1), sorted(range(m), key=p_values.__getitem__, reverse=True), strict=True
    ):
        least = min(least, p_values[i] * (m / rank))
        adjusted[i] = least
    return adjusted


def decide(
    ratio: float,
    low: float | None,
    high: float | None,
    p_value: float | None,
    p_adjusted: float | None,
    delta: float,
) -> Word:
    """Return the verdict on a ratio with a least effect ``delta`` (0.02 for 2 %).

    same: the whole interval lies within [1 / (1 + delta), 1 + delta]. slower, faster: the p-value is at most
    ``LEVEL``, the adjusted one at most ``FALSE_DISCOVERIES``, and the ratio beyond that range. unclear: else.
    """
    sure = (inf if p_value is None else p_value) <= LEVEL
    sure &= (inf if p_adjusted is None else p_adjusted) <= FALSE_DISCOVERIES
    return word_of(ratio, low, high, delta, sure=sure)


def word_of(ratio: float, low: float | None, high: float | None, delta: float, *, sure: bool) -> Word:
    """Return the verdict on a paired or unpaired ratio; sure: its difference from 1 is not chance.

    same: the whole interval lies within [1 / (1 + delta), 1 + delta]. slower, faster: the ratio is beyond
    that range, and ``sure``. unclear: all else.
    """
    most = 1 + delta
    least = 1 / most
    if low is not None and high is not None and least <= low <= high <= most:
        return "same"
    if sure and ratio > most:
        return "slower"
    if sure and ratio < least:
        return "faster"
    return "unclear"


def verdicts(records: Sequence[Record]) -> dict[tuple[str, str], Verdict]:
    """Return a verdict for each comparison among records, by (case, backend).

    Comparisons are records of status ``ok`` that have a ratio and a p-value and are not their own baseline.
    P-values are adjusted for all of them together. If a case and backend has several records, the last one
    counts.
    """
    family = {
        (record.case, record.backend): record
        for record in records
        if record.status == "ok"
        and record.ratio is not None
        and record.p_value is not None
        and record.backend != record.baseline
    }
    adjusted = benjamini_hochberg([record.p_value or 0.0 for record in family.values()])
    return {
        key: _verdict(record, p_adjusted, len(family))
        for (key, record), p_adjusted in zip(family.items(), adjusted, strict=True)
    }


def _verdict(record: Record, p_adjusted: float, family: int) -> Verdict:
    ratio, delta = record.ratio or 1.0, record.delta or 0.0
    word = decide(ratio, record.ratio_low, record.ratio_high, record.p_value, p_adjusted, delta)
    if word != "unclear":
        return Verdict(word, p_adjusted, "")
    hint, reason = _why_unclear(record, p_adjusted, family)
    return Verdict(word, p_adjusted, reason, hint if _leaves_out_1(record) else "")


def _leaves_out_1(record: Record) -> bool:
    low, high = record.ratio_low, record.ratio_high
    return low is not None and high is not None and not low <= 1 <= high


def _why_unclear(record: Record, p_adjusted: float, family: int) -> tuple[Hint, str]:
    if record.repetitions < SIGN_TEST_FROM or record.ratio_low is None:
        return "few repetitions", (
            f"{count_of(record.repetitions, 'repetition')} can show large differences only: give "
            f"--repetitions {SIGN_TEST_FROM} or more; where a call takes long, a larger --budget"
        )
    effect = f"--delta ({100 * (record.delta or 0.0):.3g} %)"
    if record.p_value is None or record.p_value > LEVEL:
        why = f"repetitions disagree by more than {effect}"
        if _leaves_out_1(record):
            # An interval of many repetitions at 95 % may do so all the same.
            why = "too few repetitions agree that it differs (sign test)"
        return "chance", f"{why}: give a larger --budget, for more and longer ones"
    if p_adjusted > FALSE_DISCOVERIES:
        # With so many agreeing repetitions it would be accepted even as the only difference.
        needed = max(fewest_repetitions(FALSE_DISCOVERIES / family), record.repetitions + 1)
        return "chance", (
            f"could be chance among {family} comparisons (adjusted p {p_adjusted:.2g}): "
            f"give --repetitions {needed} or more"
        )
    return "small", f"differs, by about {effect}: give a larger --budget, or another --delta"


FEWEST = 15
"""Repetitions before the look. If all agree on a difference, p is 0.00006: identical code is then called
slower in at most 0.003 % of cells more than without the look."""

SAME_AT_LEAST = 0.99
"""The confidence of the interval that must lie within the least effect; without a look it is 95 %."""


def repetitions_before_look(cells: int) -> int:
    """Return the repetitions before the look: one difference among ``cells`` comparisons can then count."""
    return max(FEWEST, fewest_repetitions(FALSE_DISCOVERIES / max(1, cells)))


def decided(found: Comparison, delta: float) -> bool:
    """Return whether the repetitions so far decide: all agree on a difference of more than ``delta``, or the
    interval at ``SAME_AT_LEAST`` lies within it."""
    ratios, least = found.repetition_log_ratios, log(1 + delta)
    agree = all(one > 0 for one in ratios) or all(one < 0 for one in ratios)
    if agree and abs(log(found.ratio)) > least:
        return True
    interval = median_interval(ratios, SAME_AT_LEAST)
    return interval is not None and -least <= interval.low <= interval.high <= least


def decided_candidates(
    repetitions: Sequence[RepetitionLine], look: int, backends: Iterable[str], delta: float
) -> frozenset[str]:
    """Return the candidates that take part in no repetition after the look: both sides of each backend.

    A backend that has samples on one side alone can't be compared, and stops too. repetitions: of one case.
    look: the repetitions before it; 0 for none. delta: the least effect that counts. The answer depends on
    the first ``look`` repetitions alone, so it never changes.
    """
    if not 0 < look <= len(repetitions):
        return frozenset()
    done: set[str] = set()
    for backend in backends:
        found = compare(repetitions[:look], sided(backend, HEAD), sided(backend, BASE))
        if found is None or (found.repetitions == look and decided(found, delta)):
            done |= {sided(backend, side) for side in SIDES}
    return frozenset(done)
