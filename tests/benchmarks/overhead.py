"""What attnbench itself costs: per call, per process, per run. Prints figures; asserts nothing.

Usage: python tests/benchmarks/overhead.py    (it runs the suite smoke)
"""

from __future__ import annotations

import gc
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

import torch  # noqa: F401 - as a server has it

import attnbench
from attnbench.plugins.load import load
from attnbench.plugins.sources import named
from attnbench.results.format import StoredRun, read_run
from attnbench.runner.repetitions import RepetitionUnderWay
from attnbench.timing.sample import take_sample
from attnbench.types.extensions import Source
from attnbench.worker.server import load_what_backends_share

CALLS = 20_000
PAIRS = 200
IMPORTS = 15


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


def import_ms(source: Source) -> float:
    """Return the CPU time of importing a plugin in a fork of a process that has what a server has."""
    taken = []
    for _ in range(IMPORTS):
        reader, writer = os.pipe()
        if os.fork() == 0:
            start = time.thread_time()
            loaded = load(source)
            os.write(writer, b"" if loaded.faults else f"{time.thread_time() - start}".encode())
            os._exit(0)
        os.wait()
        os.close(writer)
        with os.fdopen(reader) as answer:
            taken.append(float(answer.read() or "nan"))
    return 1e3 * median(taken)


def print_imports() -> None:
    """Print what the import in each worker costs, for the built-in backends and the plugins beside them."""
    load_what_backends_share()
    gc.freeze()
    sys.path += [str(path) for path in (Path(__file__).parents[2] / "plugins").iterdir()]
    for module in ("attnbench.backends", "attnbench_numba", "attnbench_jax"):
        print(f"importing {module}: {import_ms(named(module)):.1f} ms of CPU time in each worker")


def productive_share(stored: StoredRun) -> tuple[float, float]:
    """Share of the time after start-up in slots, warm-up and checks; and the same without the checks.

    A slot is its sample and the calls before it.
    """
    assert stored.finished is not None
    plans = {line.case: line.candidates for line in stored.cases}
    slots_s = sum(
        sum(block.wall_ns) / 1e9 * (1 + plans[line.case][name].warm_calls / block.calls)
        for line in stored.repetitions
        for name, taken in line.samples.items()
        for block in taken
    )
    warmup_s = sum(sum(trace) for line in stored.repetitions for trace in line.warmup_ns.values()) / 1e9
    phases_s = stored.finished.phases_s
    checks_s = phases_s["check"] + phases_s["oracle"]
    whole_s = stored.finished.wall_s
    return (slots_s + warmup_s + checks_s) / whole_s, (slots_s + warmup_s) / (whole_s - checks_s)


def main() -> None:
    """Measure and print."""
    ready_s: list[float] = []
    get_ready = RepetitionUnderWay._ready

    def timed(of: RepetitionUnderWay, *words: Any) -> Any:
        """From asking for a process to its being warm, on both cores at once."""
        start = time.perf_counter()
        answer = get_ready(of, *words)
        ready_s.append(time.perf_counter() - start)
        return answer

    print_imports()
    print(f"a no-op's reported time above an inline loop's: {per_call_overhead_ns():.1f} ns a call")
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(RepetitionUnderWay, "_ready", timed):
        start = time.perf_counter()
        run = attnbench.run("smoke", out=Path(folder))
        wall_s = time.perf_counter() - start
        stored = read_run(run.path)
    ready = sorted(ready_s)
    print(
        f"from asking for a process to its being warm: median {median(ready) * 1e3:.1f} ms, "
        f"95th percentile {ready[int(0.95 * len(ready))] * 1e3:.1f} ms, over {len(ready)} processes"
    )
    share, without_checks = productive_share(stored)
    assert stored.finished is not None
    print(f"{len(run.records)} records in {wall_s:.1f} s")
    print(f"in slots, warm-up or checks: {share:.1%} of the time after start-up")
    print(f"in slots or warm-up, of the time that isn't checks: {without_checks:.1%}")
    print(", ".join(f"{phase} {spent_s:.1f} s" for phase, spent_s in stored.finished.phases_s.items()))
    environment = stored.manifest.environment
    print(f"machine: {environment['cpu']}, load {environment['load_average']}")


if __name__ == "__main__":
    main()
