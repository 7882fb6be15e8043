"""Random attacks on attnbench, seeded and bounded in time.

    python tests/campaign/campaign.py PART [--seconds N] [--seed N] [--trial N]

PART: ``kills``, ``files``, ``argv``, ``environments``, or ``all``, which share the time. Prints for each part
how many trials were tried and held, and for each that did not hold what was wrong and a command that repeats
it. The exit status is 1 if one did not. It runs nightly, and not with the tests.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path

import argv
import environments
import files
import kills

Trial = Callable[[random.Random, Path, Path], None]
PARTS: dict[str, Trial] = {
    "kills": kills.trial, "files": files.trial, "argv": argv.trial, "environments": environments.trial,
}  # fmt: skip


def tried(part: str, seed: int, number: int, shared: Path) -> str:
    """Make a trial; return what did not hold, or ""."""
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        try:
            PARTS[part](random.Random(f"{part} {seed} {number}"), Path(folder), shared)
        except AssertionError as failure:
            return str(failure)
    return ""


def campaign(part: str, seed: int, seconds: float, only: int | None, shared: Path) -> bool:
    """Make trials of a part until the time is over, or only one; print how many held."""
    end, number, held = time.monotonic() + seconds, 0, 0
    while number == 0 or (only is None and time.monotonic() < end):
        trial = number if only is None else only
        failure = tried(part, seed, trial, shared)
        held += not failure
        if failure:
            again = f"python {sys.argv[0]} {part} --seed {seed} --trial {trial}"
            print(f"{part}: {failure}\n  repeat: {again}", flush=True)
        number += 1
    print(f"{part}: tried {number}, held {held}", flush=True)
    return held == number


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", type=int, help="Repeat this trial alone.")
    asked = parser.parse_args()
    # No plugins but attnbench's own, whatever is installed beside it.
    os.environ["ATTNBENCH_LOAD_PLUGINS"] = "attnbench"
    # Under a limit of file sizes Python would leave its own compiled files cut off.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    parts = list(PARTS) if asked.part == "all" else [asked.part]
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        shared, each = Path(folder), asked.seconds / len(parts)
        held = [campaign(part, asked.seed, each, asked.trial, shared) for part in parts]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
