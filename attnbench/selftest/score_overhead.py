"""Scoring attnbench's own cost per call: a reported time less the same calls in an inline loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from attnbench.compare.comparison import compare
from attnbench.compare.interval import Interval, median_interval
from attnbench.selftest.contenders import INLINE_KERNEL, INLINE_KERNELS, INLINE_NO_OP, INLINE_NO_OPS
from attnbench.selftest.findings import FALSE_FAILURES, Finding, Outcome, Scored
from attnbench.selftest.parts import Part, Terms
from attnbench.selftest.peers import Peers
from attnbench.selftest.trials import Trial, samples

AT_MOST_NS = 20.0
CALLS = {INLINE_NO_OP: INLINE_NO_OPS, INLINE_KERNEL: INLINE_KERNELS}


@dataclass(frozen=True)
class Overhead:
    """Reported time above an inline loop's, by set, ns a call; inline_ns: the loop's, in the middle."""

    by_set_ns: tuple[float, ...]
    inline_ns: float


def overhead(trials: Sequence[Trial], reported: str, inline: str, leave_out: bool = True) -> Overhead | None:
    """What is reported of a call above what an inline loop of the same calls takes, paired turn by turn.

    inline: a contender whose one call is many calls of the other in an inline loop, measured in the same
    sets, on the same core, in turns. None where they have no set in common.
    """
    from statistics import median

    differences, inline_ns = [], []
    for trial in trials:
        for line in trial.sets:
            found = compare([line], inline, reported, leave_out=leave_out)
            if found is not None:
                call_ns = median(ns for one in samples([line], reported) for ns in one)
                loop_ns = call_ns * exp(found.set_log_ratios[0]) / CALLS[inline]
                differences.append(call_ns - loop_ns)
                inline_ns.append(loop_ns)
    return Overhead(tuple(differences), median(inline_ns)) if differences else None


def score_overhead(measured: Mapping[Part, Sequence[Trial]], terms: Terms, peers: Peers) -> Scored:
    """Reported less inline, for each part: a call that does nothing, and one that computes."""
    from statistics import median

    findings, notes = [], []
    for part, trials in measured.items():
        reported, inline = part.contenders
        found = overhead(trials, reported, inline, terms.leave_out)
        what = f"reported above an inline loop's time, L={part.length}"
        first = terms.as_planned and reported != "copy_0"
        if found is None:
            findings.append(_nothing(what, first))
            continue
        findings.append(_finding(what, found, first))
        notes.append(
            f"L={part.length}: the inline loop takes {found.inline_ns:.4g} ns a call, in the middle of "
            f"{len(found.by_set_ns)} sets; per set the difference is {median(found.by_set_ns):.3g} ns"
        )
    return Scored(findings=tuple(findings), notes=tuple(notes))


def _nothing(what: str, first: bool) -> Finding:
    return Finding(what, "at most", AT_MOST_NS, first, None, None, None, "not refuted", unit="ns")


def _finding(what: str, found: Overhead, first: bool) -> Finding:
    from statistics import median

    estimate = median(found.by_set_ns)
    bounds = median_interval(found.by_set_ns, 0.9)
    sure = median_interval(found.by_set_ns, 1 - 2 * FALSE_FAILURES)
    outcome: Outcome = "not refuted" if estimate <= AT_MOST_NS else "missed"
    if bounds is not None and bounds.high <= AT_MOST_NS:
        outcome = "met"
    elif sure is not None and sure.low > AT_MOST_NS:
        outcome = "refuted"
    return Finding(
        what=what,
        side="at most",
        target=AT_MOST_NS,
        first=first,
        estimate=estimate,
        low=bounds.low if bounds else None,
        high=bounds.high if bounds else None,
        outcome=outcome,
        trials=len(found.by_set_ns),
        effective=len(found.by_set_ns),
        false_failure=_wrongly(sure),
        unit="ns",
    )


def _wrongly(sure: Interval | None) -> float:
    """How often an interval lies above a median that is exactly the target."""
    return 0.0 if sure is None else (1 - sure.confidence) / 2
