"""Random attacks on attnbench, seeded and bounded in time.

    python tests/campaign/campaign.py PART [--seconds N] [--trials N] [--seed N] [--trial N]

PART: ``kills``, ``files``, ``argv``, ``environments``, ``rewritten``, ``shadowed``, ``shadowed-run``,
``resumed``, ``edited``, ``settings``; ``labels`` for the last six, or ``all``. Parts share the seconds and
the trials. Prints for each part how many trials were tried and held, and for each that did not hold what was
wrong and a command that repeats it. The exit status is 1 if one did not. It runs nightly, and not with the
tests.
"""

from __future__ import annotations

import math
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
import labels

Trial = Callable[[random.Random, Path, Path], None]
PARTS: dict[str, Trial] = {
    "kills": kills.trial, "files": files.trial, "argv": argv.trial, "environments": environments.trial,
} | {name: trial for name, (trial, _) in labels.LABELS.items()}  # fmt: skip
GROUPS: dict[str, dict[str, float]] = {
    "all": dict.fromkeys(PARTS, 1 / len(PARTS)),
    "labels": {name: share / 2000 for name, (_, share) in labels.LABELS.items()},
}
"""Parts that share the time, and the share of the trials that each makes."""


def tried(part: str, seed: int, number: int, shared: Path) -> str:
    """Make a trial; return what did not hold, or ""."""
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        try:
            PARTS[part](random.Random(f"{part} {seed} {number}"), Path(folder), shared)
        except AssertionError as failure:
            return str(failure)
    return ""


def campaign(part: str, seed: int, seconds: float, trials: float, only: int | None, shared: Path) -> bool:
    """Make trials of a part until the time or their number is over, or only one; print how many held."""
    end, number, held = time.monotonic() + seconds, 0, 0
    while number == 0 or (only is None and number < trials and time.monotonic() < end):
        trial = number if only is None else only
        failure = tried(part, seed, trial, shared)
        held += not failure
        if failure:
            again = f"python {sys.argv[0]} {part} --seed {seed} --trial {trial}"
            print(f"{part}: {failure}\n  repeat: {again}", flush=True)
        number += 1
    print(f"{part}: tried {number}, held {held}, seed {seed}", flush=True)
    return held == number


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, *GROUPS])
    parser.add_argument("--seconds", type=float, help="60 by default, or no limit with --trials.")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", type=int, help="Repeat this trial alone.")
    asked = parser.parse_args()
    # No plugins but attnbench's own, whatever is installed beside it.
    os.environ["ATTNBENCH_LOAD_PLUGINS"] = "attnbench"
    # Under a limit of file sizes Python would leave its own compiled files cut off.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    seconds = asked.seconds or (60.0 if asked.trials is None else math.inf)
    trials = math.inf if asked.trials is None else asked.trials
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        group = GROUPS.get(asked.part, {asked.part: 1.0})
        held = [
            campaign(part, asked.seed, seconds / len(group), trials * share, asked.trial, Path(folder))
            for part, share in group.items()
        ]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
