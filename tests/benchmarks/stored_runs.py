"""Run the suite smoke again and again, compare each run with the one before, and count the verdicts.

All runs are of the same code, so ``slower`` and ``faster`` are false. Run on a quiet machine::

    python tests/benchmarks/stored_runs.py [--runs 21] [--on EXECUTOR]

--on: make every second run by an executor, as ``attnbench run --on``: its times must be those of a plain run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

ATTNBENCH = (sys.executable, "-m", "attnbench")


def main() -> None:
    """Measure and print."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--on", metavar="EXECUTOR")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    files = [folder / f"{number:02d}.jsonl" for number in range(chosen.runs)]
    for number, file in enumerate(files):
        on = ("--on", chosen.on) if chosen.on and number % 2 else ()
        command = [*ATTNBENCH, "run", "smoke", *on, "--out", str(file)]
        done = subprocess.run(command, stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout.strip().splitlines()[-1], flush=True)
    verdicts, wrong, ratios = Counter[str](), list[str](), list[str]()
    for number, (before, after) in enumerate(pairwise(files)):
        if chosen.on and number % 2:
            before, after = after, before  # the executor's run is always the second
        command = [*ATTNBENCH, "compare", str(before), str(after), "--format", "json"]
        printed = subprocess.run(command, stdout=-1, text=True, check=False).stdout
        cells = json.loads(printed)["cells"]
        ratios.append(f"{median(cell['ratio'] for cell in cells if cell['ratio'] is not None):.3f}")
        for cell in cells:
            verdicts[cell["verdict"]] += 1
            if cell["verdict"] in ("slower", "faster"):
                wrong.append(f"{after.name}: {cell['backend']} on {cell['case']}, {cell['ratio']:.2f}")
    print(f"{len(files) - 1} pairs of runs: {dict(verdicts)}; their median ratios: {', '.join(ratios)}")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
