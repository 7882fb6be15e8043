"""What a run on four machines costs beside measuring, for 10, 100 and 1,000 cells.

The machines are simulated: four places whose tasks are processes of this one and share its cores. So times
of calls mean nothing here, but the driver's CPU time and memory do, and the share of the time in which tasks
measure, beside that of a plain run::

    python tests/benchmarks/fleet_cost.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from attnbench.results.format import read_runs

PLACES = 4
BACKENDS = ("eager", "bmm", "sdpa_math", "weighted_sum", "chunked")
PLUGIN = f"""
from contextlib import contextmanager
from attnbench import Executor, Fleet, Place, hookimpl
from attnbench.fleet.node import run_here

@contextmanager
def connect(address):
    places = tuple(Place(f"node{{n}}", "cpu") for n in range({PLACES}))
    yield Fleet(places, lambda place, task: run_here(task))

@hookimpl
def attnbench_executors():
    return (Executor("simulated", "Machines that are this one.", connect),)
"""


def measured(folder: Path, cells: int, *on: str) -> tuple[float, float, float, float, int]:
    """Run so many cells.

    Returns its seconds, the CPU seconds and MiB of the driver, the seconds of measuring, and the units.
    """
    cases = [f"attention/dot/H1-L{length}-D8" for length in range(1, cells // len(BACKENDS) + 1)]
    chosen = [word for name in BACKENDS for word in ("--backend", name)]
    out = folder / "all.jsonl"
    command = [sys.executable, "-m", "attnbench", "--quiet", "run", *cases, *chosen, "--budget", "0.02"]
    command += ["--repetitions", "3", "--out", str(out), *on]
    started = time.monotonic()
    run = psutil.Popen(command, stdout=subprocess.DEVNULL)
    cpu_s = memory = 0.0
    while run.poll() is None:
        try:
            used = run.cpu_times()
            cpu_s, memory = used.user + used.system, max(memory, run.memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.1)
    if run.wait():
        raise SystemExit(f"the run of {cells} cells ended with status {run.returncode}")
    wall_s = time.monotonic() - started
    runs = read_runs(out)
    timing_s = sum(each.finished.phases_s.get("repetitions", 0.0) for each in runs if each.finished)
    return wall_s, cpu_s, memory / 2**20, timing_s, len(runs)


def main() -> None:
    """Measure and print."""
    for cells in (10, 100, 1000):
        for places, on in ((1, ()), (PLACES, ("--on", "simulated"))):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                (folder / "simulated.py").write_text(PLUGIN)
                plugin = ("--plugin", str(folder / "simulated.py"))
                wall_s, cpu_s, memory_mib, timing_s, tasks = measured(folder, cells, *plugin, *on)
            idle = 1 - timing_s / (wall_s * places)
            print(
                f"{cells} cells, {places} places, {tasks} units: {wall_s:.0f} s, of which the places do not "
                f"measure {idle:.0%}; driver: {cpu_s:.1f} s of CPU, {memory_mib:.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
