"""Time runs as users start them: seconds to the first answer and to the end, and where the time went.

Run on a quiet machine::

    python tests/benchmarks/time_to_answer.py [--runs 3] [WORDS...]

WORDS: of ``attnbench run``; without any, the suite smoke, then L = 1024 and 2048, then L = 4096, causal or
not, with six backends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from pathlib import Path

from attnbench.api import load
from attnbench.results.format import read_run

SIX = ("eager", "sdpa_flash", "sdpa_math", "bmm", "per_head_loop", "flex")


def lengths(*of: int) -> list[str]:
    """Return the words that measure cases of these lengths, causal or not, with six backends."""
    cases = [f"attention/scaled_dot/H8-L{length}-D64/{mask}" for length in of for mask in ("none", "causal")]
    return [*cases, *(word for name in SIX for word in ("--backend", name))]


RUNS = {"smoke": ["smoke"], "L = 1024 and 2048": lengths(1024, 2048), "L = 4096": lengths(4096)}
DECIDED_BEYOND = 1.3


def cells(words: list[str], folder: Path) -> list[str]:
    """Run once; return the cells of its row in the table."""
    out = folder / "run.jsonl"
    begun, first_s = time.perf_counter(), 0.0
    with subprocess.Popen(
        [sys.executable, "-m", "attnbench", "run", *words, "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if not first_s and ": use " in line:
                first_s = time.perf_counter() - begun
    whole_s = time.perf_counter() - begun
    finished = read_run(out).finished
    assert finished is not None, f"the run did not finish: exit status {process.returncode}"
    judged = [one for one in load(out).judged if one.verdict is not None and one.record.ratio is not None]
    far = [one for one in judged if not 1 / DECIDED_BEYOND <= (one.record.ratio or 1) <= DECIDED_BEYOND]
    verdicts = Counter(str(one.verdict) for one in judged).most_common()
    return [
        f"{first_s:.0f} s",
        f"{whole_s:.0f} s",
        ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in finished.phases_s.items()),
        ", ".join(f"{count} {word}" for word, count in verdicts),
        f"{sum(one.verdict == 'unclear' for one in far)} of {len(far)}",
    ]


def main() -> None:
    """Measure and print a line for each run."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args()
    runs = {" ".join(chosen.words): chosen.words} if chosen.words else RUNS
    print(
        "| run | first answer | whole | phases | verdicts | beyond 1.3, unclear |\n|---|--:|--:|---|---|--:|"
    )
    for name, words in runs.items():
        for _ in range(chosen.runs):
            with tempfile.TemporaryDirectory() as folder:
                print(f"| {' | '.join([name, *cells(words, Path(folder))])} |", flush=True)


if __name__ == "__main__":
    main()
