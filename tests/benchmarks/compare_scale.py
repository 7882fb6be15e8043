"""Print the time and the peak memory of comparing two runs of 50,000 records.

Usage: compare_scale.py [RECORDS], where RECORDS is the number of records a side. The runs are written into a
temporary folder, up to 750 MiB: one case of a reference run, five backends in nine repetitions, again and
again.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from attnbench.results.digest import digested

REFERENCE = Path(__file__).parents[1] / "runs" / "lengths.jsonl"
CASE = b"attention/scaled_dot/B1-H8-Lq512-Lk512-D64/causal/float32/cpu/forward"
BACKENDS = 5
RECORDS = 50_000
MOST_CPU_S, MOST_GIB = 15.0, 0.7


def write_run(path: Path, cases: list[str], number: int) -> None:
    """A whole run of these cases, all with the times of one."""
    manifest, *lines, end = REFERENCE.read_bytes().splitlines(keepends=True)
    named = {"run_id": f"run-{number}", "started": f"2026-01-0{number}T00:00:00+00:00", "cases": cases}
    of_case = b"".join(line for line in lines if CASE in line)
    first = json.dumps(json.loads(manifest) | named, separators=(",", ":")).encode()
    rest = (of_case.replace(CASE, case.encode()).splitlines() for case in cases)
    with path.open("wb") as file:
        file.writelines(digested(chain([first], chain.from_iterable(rest), [end])))


def load() -> str:
    """Return how many processes wanted a core in the last minute, and the number of cores."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> None:
    """Write two runs, compare them as a user would, print what that took; fail beyond the limits."""
    begun = time.process_time()
    sum(1 for _ in range(10_000_000))
    print(f"this core counts to ten million in {time.process_time() - begun:.2f} s; load {load()}")
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    cases = [CASE.decode().replace("H8", f"H{1 + i}") for i in range(records // BACKENDS)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "base.jsonl", Path(folder) / "new.jsonl"]
        for number, path in enumerate(paths, start=1):
            write_run(path, cases, number)
        size = sum(path.stat().st_size for path in paths) / 2**20
        spent = 0.0
        for format_ in ("json", "markdown", "table"):
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "attnbench", "compare", *map(str, paths), "--format", format_],
                stdout=subprocess.PIPE, check=False,
            )  # fmt: skip
            took = time.perf_counter() - begun
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s, spent = used.ru_utime + used.ru_stime - spent, used.ru_utime + used.ru_stime
            peak = used.ru_maxrss / 2**20
            print(
                f"{records} records a side, {size:.0f} MiB of files, --format {format_}: {took:.1f} s "
                f"({cpu_s:.1f} s of CPU), "
                f"peak so far {peak:.2f} GiB, exit {done.returncode}, {len(done.stdout) / 2**20:.1f} MiB out"
            )
            if done.returncode not in (0, 1):
                sys.exit("not compared")
            # CPU time: other work on the machine adds to the wall time.
            if records <= RECORDS and (cpu_s > MOST_CPU_S or peak > MOST_GIB):
                sys.exit(f"beyond {MOST_CPU_S} s or {MOST_GIB} GiB")
    print(f"load {load()}")


if __name__ == "__main__":
    main()
