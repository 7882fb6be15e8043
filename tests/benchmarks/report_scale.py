"""Print what reports and comparisons of large runs take, in time and peak memory, as a table.

Usage: report_scale.py [RECORDS], where RECORDS is the number of records of the largest run, 100,000 if left
out. The page has a fifth of it. The runs are written into a temporary folder, up to 1.8 GiB. Other work on
the machine adds to the times, so the first line says how fast a core counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_scale import BACKENDS, CASE, write_run

RECORDS = 100_000


def measured(words: list[str]) -> tuple[float, float, float]:
    """Run a command of attnbench; return its seconds, its seconds of CPU, and its peak memory in GiB."""
    begun = time.perf_counter()
    program = subprocess.Popen([sys.executable, "-m", "attnbench", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(program.pid, 0)
    took = time.perf_counter() - begun
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"failed: {words}")
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> None:
    """Write the runs, and print the table."""
    begun = time.process_time()
    sum(1 for _ in range(10_000_000))
    print(f"this core counts to ten million in {time.process_time() - begun:.2f} s\n")
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, number, count in (("large", 1, records), ("other", 2, records), ("page", 3, records // 5)):
            cases = [CASE.decode().replace("H8", f"H{1 + i}") for i in range(count // BACKENDS)]
            write_run(folder / f"{file}.jsonl", cases, number)
        large, other, page = (str(folder / f"{file}.jsonl") for file in ("large", "other", "page"))
        rows = (
            ("report", records, ["report", large]),
            ("report --format markdown", records, ["report", large, "--format", "markdown"]),
            ("report --format csv", records, ["report", large, "--format", "csv"]),
            ("report --html", records // 5, ["report", page, "--html", str(folder / "page.html")]),
            ("compare", records, ["compare", large, other]),
        )
        print("| command | records | seconds | of CPU | peak GiB |")
        print("|---|---:|---:|---:|---:|")
        for what, count, words in rows:
            took, cpu, peak = measured(words)
            print(f"| `{what}` | {count:,} | {took:.1f} | {cpu:.1f} | {peak:.2f} |", flush=True)


if __name__ == "__main__":
    main()
