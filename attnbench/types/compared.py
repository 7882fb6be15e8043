"""What a comparison of two sides says: of one cell, and of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from attnbench.types.record import Status

Outcome = Literal["slower", "mismatch", "missing", "unclear", "same", "faster", "none"]
"""Verdicts on a cell, the worst first. mismatch: its output is wrong on the new side. missing: it has a time
on one side at most, though it should have two. none: there is nothing to compare it with: it has a time on
neither side, or is new."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

FAILING: tuple[Outcome, ...] = ("slower", "mismatch", "missing", "unclear")
"""Outcomes that a gate may fail on."""


@dataclass(frozen=True)
class ComparedCell:
    """A backend on a case, on two sides.

    base_status, new_status: None where the side doesn't have it. base_ms, new_ms: median over processes of
    their median time per call. ratio: new over base; low, high: its interval at ``confidence``; below 1 is
    faster. p_value: that there is no difference; p_adjusted: among all cells (Benjamini and Hochberg).
    delta: the least effect that counted; least_told: the smallest effect that a verdict could rest on, delta
    or what processes and reference calls differ by. reason: why, in words, where the verdict isn't plain.
    """

    case: str
    rule: str
    backend: str
    verdict: Outcome
    reason: str = ""
    base_status: Status | None = None
    new_status: Status | None = None
    base_ms: float | None = None
    new_ms: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    delta: float = 0.02
    least_told: float | None = None


@dataclass(frozen=True)
class Difference:
    """A fact of the environment that the sides don't have alike. matters: whether times can't be compared."""

    fact: str
    base: str
    new: str
    matters: bool


@dataclass(frozen=True)
class Compared:
    """A whole comparison.

    base, new: how the sides are called. differences: of their environments, those that matter first. forced:
    whether some were overridden by the user. warnings: what else a reader must know, one sentence each; a
    strict gate fails on any. conventions: what ratios and verdicts mean here, one sentence each.
    """

    base: str
    new: str
    cells: tuple[ComparedCell, ...]
    differences: tuple[Difference, ...] = ()
    forced: bool = False
    warnings: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
