"""What stands under a table: how many records there are, and by which conventions its numbers are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from attnbench.cases.counts import FLOP_CONVENTION
from attnbench.compare.interval import AT_LEAST
from attnbench.compare.verdict import FALSE_DISCOVERIES, LEVEL, fewest_sets
from attnbench.reports.columns import metrics_of
from attnbench.reports.judged import Judged
from attnbench.types.record import STATUSES, Record
from attnbench.types.words import clean, count_of

RATIO_CONVENTION = (
    "time is the median of a call; a ratio is time over the baseline's, so below 1 is faster, taken from "
    "pairs measured next to each other, not from the times shown"
)
INTERVAL_CONVENTION = (
    f"an interval, and ±, its farther end, holds at {100 * AT_LEAST:g} % or more, over sets, each a fresh "
    "process of every backend; no number has a digit finer than its interval justifies, or than tells a "
    "ratio from 1"
)
NO_INTERVAL = (
    f"?: too few sets for an interval ({fewest_sets(1 - AT_LEAST)} are the least, {fewest_sets(LEVEL)} for a "
    "verdict): leave --sets out, or give more"
)
BEST_CONVENTION = "×best: time over that of the fastest of the case, from pairs as well"
LIMIT_CONVENTION = (
    "limit: the least time in which this machine, as measured in this run, could do the operations of the "
    "case or move its bytes, over the time taken"
)
ERROR_CONVENTION = (
    "every row was checked against the float64 oracle; rms/ref and max/ref are its errors over those of the "
    "plain computation in the same dtype"
)
TRAFFIC_CONVENTION = (
    "bytes: inputs (of attention the rows that the mask keeps) and parameters read once, the output "
    "written once"
)
KERNEL_CONVENTION = "a → b: what a calls runs the kernel of b, by a trace of one call (--trace shows it)"
SAMPLED = "of large cases a sample of query rows was checked: columns rows and rows_of of --format json"
_MOST_REASONS = 3


def counted(records: Sequence[Record]) -> str:
    """How many cases there are, and how many records of each status."""
    counts = Counter(record.status for record in records)
    said = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in STATUSES if counts[status])
    return f"{count_of(len({record.case for record in records}), 'case')}: {said or 'no records'}"


def footer(judged: Sequence[Judged], heads: Collection[str]) -> list[str]:
    """A line of counts, what could not be told, and the conventions behind the columns called ``heads``."""
    records = [one.record for one in judged]
    lines = [counted(records), *_unclear(judged)]
    timed = [record for record in records if record.status == "ok" and record.median_ms is not None]
    if timed and all(record.ratio is None for record in timed):
        lines.append(f"no ratios: the baseline {timed[0].baseline} has no time; run it too, or name another")
    if any(_without_interval(record) for record in timed):
        lines.append(NO_INTERVAL)
    if "time" in heads:
        lines.append(RATIO_CONVENTION)
    if any(record.low_ms is not None for record in timed):
        lines.append(INTERVAL_CONVENTION)
    if "verdict" in heads:
        lines.append(_verdict_convention(judged))
    if "×best" in heads:
        lines.append(BEST_CONVENTION)
    if "limit" in heads:
        lines.append(LIMIT_CONVENTION)
    if any(record.kernel_of and record.status == "ok" for record in records):
        lines.append(KERNEL_CONVENTION)
    if "rms/ref" in heads:
        lines.append(ERROR_CONVENTION)
    if any(r.accuracy is not None and r.accuracy.rows < r.accuracy.rows_of for r in records):
        lines.append(SAMPLED)
    if {"TFLOP/s", "limit"} & set(heads):
        lines.append(FLOP_CONVENTION)
    if {"GB/s", "limit"} & set(heads):
        lines.append(TRAFFIC_CONVENTION)
    metrics = [entry for entry in metrics_of(judged) if entry.record.head in heads]
    lines += [f"{e.record.head}: {clean(e.record.summary)} ({e.source.distribution})" for e in metrics]
    return lines


def _without_interval(record: Record) -> bool:
    compared = record.ratio is not None and record.backend != record.baseline
    return record.low_ms is None or (compared and record.ratio_low is None)


def _unclear(judged: Sequence[Judged]) -> list[str]:
    """Why verdicts are unclear and what to do, each reason once: it is that of many rows."""
    reasons = Counter(one.why for one in judged if one.verdict == "unclear")
    lines = [f"unclear, {count} of {_family(judged)}: {why}" for why, count in reasons.most_common()]
    if len(lines) > _MOST_REASONS:
        others = sum(count for _, count in reasons.most_common()[_MOST_REASONS:])
        lines[_MOST_REASONS:] = [f"unclear, {others} more: column verdict_reason of --format json"]
    return lines


def _family(judged: Sequence[Judged]) -> int:
    return sum(one.p_adjusted is not None for one in judged)


def _verdict_convention(judged: Sequence[Judged]) -> str:
    """What the words mean, with the least effect and the family of this run."""
    deltas = sorted({one.record.delta for one in judged if one.verdict is not None and one.record.delta})
    delta = " or ".join(f"{100 * delta:g} %" for delta in deltas) or "the least effect"
    family = count_of(_family(judged), "ratio")
    return (
        f"verdict: same, the whole interval of the ratio lies within {delta} of 1; faster or slower, the "
        f"ratio is beyond that, with p ≤ {LEVEL:g} by a sign test over sets and ≤ {FALSE_DISCOVERIES:g} "
        f"after Benjamini-Hochberg over the {family} of the run; "
        "unclear, none of these"
    )
