"""Runs on a machine that is too busy: no status is false, and runs beside each other don't mix.

Needs attnbench-selftest. It takes half an hour or more on two cores::

    python tests/campaign/crowd.py busy|together

busy: ``attnbench run smoke`` five times while four processes keep the cores busy. together: ten runs in one
folder and two live comparisons of identical commits, all at the same time. The exit status is 1 if a backend
has another status than ``ok`` or one that declines, if a comparison calls identical code slower, or if a
process is left.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from attnbench_selftest.live import compare_commits

from attnbench.results.format import read_run
from attnbench.types.status import MEANING

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from identical import other_work

CASES = ("attention/dot/B1-H2-L64-D32", "attention/scaled_dot/B1-H4-L128-D64/causal")
TIMEOUT_S = "600"
"""Compiling takes some seconds of a core, of which each of a dozen runs has a small share."""

GRACE_S = 10.0
PROCESSES = 4


def started_run(words: list[str], folder: Path, name: str) -> subprocess.Popen[str]:
    """Start ``attnbench run``; its file is ``name``."""
    command = [sys.executable, "-m", "attnbench", "run", *words, "--out", name]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def false_statuses(process: subprocess.Popen[str], file: Path) -> list[str]:
    """Wait for a run; return what is wrong with its end, its printed answer and its records."""
    printed, _ = process.communicate()
    if process.returncode != 0:
        return [f"{file.name}: exit status {process.returncode}: {printed[-1000:]}"]
    run = read_run(file)
    print(f"{file.name}: {dict(Counter(record.status for record in run.records))}", flush=True)
    wrong = [] if f"stored in {file.name}" in printed else [f"{file.name}: it names another file: {printed}"]
    return wrong + [
        f"{file.name}: {record.backend} is {record.status} on {record.case}: {record.reason}"
        for record in run.records
        if record.status != "ok" and not MEANING[record.status].declined
    ]


def busy(folder: Path) -> list[str]:
    """Run the suite smoke several times beside other work; return what is wrong."""
    wrong: list[str] = []
    with other_work(PROCESSES):
        for number in range(5):
            name, begun = f"busy{number}.jsonl", time.monotonic()
            wrong += false_statuses(started_run(["smoke"], folder, name), folder / name)
            print(f"  {time.monotonic() - begun:.0f} s beside {PROCESSES} busy processes", flush=True)
    return wrong


def together(folder: Path) -> list[str]:
    """Start runs and live comparisons at the same time; return what is wrong."""
    names = [f"together{number}.jsonl" for number in range(10)]
    with ThreadPoolExecutor(2) as threads:
        compared = [threads.submit(compare_commits, 1, CASES, (), str, None, planted=False) for _ in range(2)]
        started = [started_run([*CASES, "--timeout", TIMEOUT_S], folder, name) for name in names]
        wrong = [
            problem
            for name, process in zip(names, started, strict=True)
            for problem in false_statuses(process, folder / name)
        ]
        for each in compared:
            (comparison,) = each.result()
            print(f"a comparison: {dict(Counter(cell.verdict for cell in comparison.cells))}", flush=True)
            if comparison.exit_status != 0:
                wrong.append(f"a comparison of identical commits: exit status {comparison.exit_status}")
    found = [read_run(folder / name) for name in names]
    if len({run.manifest.run_id for run in found}) != len(names):
        wrong.append("two runs have the same id")
    if len({tuple((record.case, record.backend) for record in run.records) for run in found}) != 1:
        wrong.append("runs have different records")
    return wrong


def left_over() -> list[str]:
    """Return the processes of attnbench that this one has left."""
    children = psutil.Process().children(recursive=True)
    _, alive = psutil.wait_procs(children, timeout=GRACE_S)
    return [f"left: {process.pid} {' '.join(process.cmdline())}" for process in alive]


def main() -> None:
    """Make the trial of a part."""
    parts = {"busy": busy, "together": together}
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crowd-") as name:
        wrong = parts[chosen.part](Path(name)) + left_over()
    print("\n".join(wrong) if wrong else f"{chosen.part}: all held")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
