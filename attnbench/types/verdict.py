"""Rules that say from samples which of two contenders is the faster, ours and others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Word = Literal["faster", "slower", "same", "unclear"]
WORDS: tuple[Word, ...] = get_args(Word)

SampleSets = Sequence[Sequence[float]]
"""Times per call in nanoseconds, a sequence for each set (a fresh process), in the order measured."""


@dataclass(frozen=True)
class VerdictRule:
    """A rule that the self-test scores beside ours, on the same samples.

    name: how it's called. summary: what it does, one line, with the tool whose rule it is.
    decide: ``decide(contender, baseline)`` says what the contender is against the baseline.
    """

    name: str
    summary: str
    decide: Callable[[SampleSets, SampleSets], Word]
