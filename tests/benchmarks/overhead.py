"""What attnbench itself costs: per call, per process, per run. Prints figures; asserts nothing.

Usage: python tests/benchmarks/overhead.py [SUITE OR CASE ...]    (default: smoke)
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

# Before any library starts its threads, as in a worker.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import attnbench
from attnbench.runner.link import WorkerLink
from attnbench.runner.run_file import StoredRun, read_run
from attnbench.timing.sample import take_sample
from attnbench.worker import messages as m

CALLS = 20_000
PAIRS = 200


def no_op(a: Any, b: Any, c: Any) -> None:
    """What a backend would be that does nothing."""


def inline_ns(a: int, b: int, c: int) -> float:
    """Per call, an inline loop."""
    call = no_op
    times = repeat(None, CALLS)
    start = time.perf_counter_ns()
    for _ in times:
        call(a, b, c)
    return (time.perf_counter_ns() - start) / CALLS


def per_call_overhead_ns() -> float:
    """Reported time of a no-op minus an inline loop's, per call: the median of alternating pairs."""
    differences = []
    for _ in range(PAIRS):
        inline = inline_ns(1, 2, 3)
        sample, _ = take_sample(no_op, 1, 2, 3, CALLS)
        differences.append(sample.wall_ns / CALLS - inline)
    return median(differences)


class FirstBlocks:
    """Watches a run: seconds from asking for a fork to its first measured block, waiting left out."""

    def __init__(self) -> None:
        self.spent_s: dict[int, float] = {}
        self.ready_s: list[float] = []
        self._ask, self._fork = WorkerLink.ask, WorkerLink.fork

    def fork(self, link: WorkerLink, **words: Any) -> WorkerLink:
        """Fork, timed."""
        start = time.perf_counter()
        forked = self._fork(link, **words)
        if words["child"]:
            self.spent_s[forked.pid] = time.perf_counter() - start
        return forked

    def ask(self, link: WorkerLink, request: m.Request, *words: Any, **more: Any) -> Any:
        """Ask, timed, up to the first block of a child."""
        start = time.perf_counter()
        answer = self._ask(link, request, *words, **more)
        if link.pid in self.spent_s and isinstance(request, m.Activations | m.WarmUp | m.Measure):
            self.spent_s[link.pid] += time.perf_counter() - start
            if isinstance(request, m.Measure):
                self.ready_s.append(self.spent_s.pop(link.pid))
        return answer


def productive_share(stored: StoredRun) -> tuple[float, float]:
    """Share of the time after start-up in blocks, warm-up and checks; and the same without the checks."""
    assert stored.finished is not None
    blocks_s = (
        sum(sum(block.wall_ns) for line in stored.sets for blocks in line.blocks.values() for block in blocks)
        / 1e9
    )
    warmup_s = sum(sum(trace) for line in stored.sets for trace in line.warmup_ns.values()) / 1e9
    phases_s = stored.finished.phases_s
    checks_s = phases_s["check"] + phases_s["oracle"]
    whole_s = stored.finished.wall_s
    return (blocks_s + warmup_s + checks_s) / whole_s, (blocks_s + warmup_s) / (whole_s - checks_s)


def main(words: list[str]) -> None:
    """Measure and print."""
    print(f"a no-op's reported time above an inline loop's: {per_call_overhead_ns():.1f} ns a call")
    watch = FirstBlocks()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(WorkerLink, "ask", lambda self, *w, **k: watch.ask(self, *w, **k)),
        mock.patch.object(WorkerLink, "fork", lambda self, **k: watch.fork(self, **k)),
    ):
        start = time.perf_counter()
        run = attnbench.run(words or "smoke", out=Path(folder))
        wall_s = time.perf_counter() - start
        stored = read_run(run.path)
    ready = sorted(watch.ready_s)
    print(
        f"fork to first measured block: median {median(ready) * 1e3:.1f} ms, "
        f"95th percentile {ready[int(0.95 * len(ready))] * 1e3:.1f} ms, over {len(ready)} children"
    )
    share, without_checks = productive_share(stored)
    assert stored.finished is not None
    print(f"{len(run.records)} records in {wall_s:.1f} s")
    print(f"in blocks, warm-up or checks: {share:.1%} of the time after start-up")
    print(f"in blocks or warm-up, of the time that isn't checks: {without_checks:.1%}")
    print(", ".join(f"{phase} {spent_s:.1f} s" for phase, spent_s in stored.finished.phases_s.items()))
    environment = stored.manifest.environment
    print(f"machine: {environment['cpu']}, load {environment['load_average']}")


if __name__ == "__main__":
    main(sys.argv[1:])
