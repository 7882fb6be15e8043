"""What stands under a table: how many records there are, and by which conventions its numbers are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from attnbench.cases.counts import FLOP_CONVENTION
from attnbench.types.record import STATUSES, Record

RATIO_CONVENTION = (
    "time is the median of a call, ± how far the sets lie apart (half of it); a ratio is time over the "
    "baseline's, so below 1 is faster, taken from pairs measured next to each other, not from the times shown"
)
ERROR_CONVENTION = (
    "every row was checked against the float64 oracle; rms/ref and max/ref are its errors over those of the "
    "plain computation in the same dtype"
)
TRAFFIC_CONVENTION = "GB/s: inputs and parameters read once, the output written once"
SAMPLED = "of large cases a sample of query rows was checked: columns rows and rows_of of --format json"


def footer(records: Sequence[Record], heads: Collection[str]) -> list[str]:
    """A line of counts, and the conventions behind the columns called ``heads``."""
    counts = Counter(record.status for record in records)
    said = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in STATUSES if counts[status])
    cases = len({record.case for record in records})
    lines = [f"{cases} {'case' if cases == 1 else 'cases'}: {said or 'no records'}"]
    if "time" in heads:
        lines.append(RATIO_CONVENTION)
    timed = [record for record in records if record.median_ms is not None]
    if timed and all(record.ratio is None for record in timed):
        lines.append(f"no ratios: the baseline {timed[0].baseline} has no time; run it too, or name another")
    if "rms/ref" in heads:
        lines.append(ERROR_CONVENTION)
    if any(r.accuracy is not None and r.accuracy.rows < r.accuracy.rows_of for r in records):
        lines.append(SAMPLED)
    if "TFLOP/s" in heads:
        lines.append(FLOP_CONVENTION)
    if "GB/s" in heads:
        lines.append(TRAFFIC_CONVENTION)
    return lines
