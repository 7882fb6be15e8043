"""Print how far repetitions of a live comparison differ, and how far with fewer or longer samples.

    attnbench compare --ref HEAD~ --head HEAD --all --out live.jsonl
    python tests/benchmarks/spread.py live.jsonl

Fewer: only the first samples of each segment. Longer: neighbouring samples are put together, their mean in
place of each. Both take samples of the same run, so the machine is the same for all lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import log
from pathlib import Path
from statistics import fmean, median, quantiles

from attnbench.results.format import StoredRun, read_run
from attnbench.stats.pairs import Samples, samples_of
from attnbench.types.compared import BASE, HEAD, parts_of, sided
from attnbench.types.record import RepetitionLine

WAYS = {"all samples": (1.0, 1), "half of them": (0.5, 1), "a quarter": (0.25, 1), "twice as long": (1.0, 2),
        "three times as long": (1.0, 3)}  # fmt: skip


def ratios(line: RepetitionLine, backend: str, share: float, together: int) -> list[float]:
    """Return the log ratios of a repetition, of samples that nothing disturbed."""
    found = []
    head, base = (samples_of(line.samples[sided(backend, side)]) for side in (HEAD, BASE))
    for segment in head.keys() & base.keys():
        ours, theirs = head[segment], base[segment]
        kept = round(share * min(len(ours.ns), len(theirs.ns)))
        for first in range(0, kept - together + 1, together):
            window = slice(first, first + together)
            if not any(ours.disturbed[window] + theirs.disturbed[window]):
                found.append(log(_mean(ours, window) / _mean(theirs, window)))
    return found


def _mean(samples: Samples, window: slice) -> float:
    return fmean(samples.ns[window])


def spreads(run: StoredRun, share: float, together: int) -> Iterator[float]:
    """Yield for each cell the spread of its repetitions, as a robust standard deviation."""
    for case in run.manifest.cases:
        lines = [line for line in run.repetitions if line.case == case]
        for backend in dict.fromkeys(parts_of(name)[0] for line in lines for name in line.samples):
            both = [
                one for one in lines if {sided(backend, side) for side in (BASE, HEAD)} <= one.samples.keys()
            ]
            logs = [median(found) for one in both if (found := ratios(one, backend, share, together))]
            if len(logs) >= 9:
                lower, _, upper = quantiles(logs, n=4)
                # The quartiles of normal values are 1.349 standard deviations apart.
                yield (upper - lower) / 1.349


def main() -> None:
    """Print a line for each way."""
    run = read_run(Path(sys.argv[1]))
    print("| samples | cells | spread of repetitions: median | mean |\n|---|--:|--:|--:|")
    for name, (share, together) in WAYS.items():
        found = list(spreads(run, share, together))
        print(f"| {name} | {len(found)} | {100 * median(found):.1f} % | {100 * fmean(found):.1f} % |")


if __name__ == "__main__":
    main()
