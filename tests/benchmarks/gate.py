"""How often ``attnbench compare`` is right: on identical commits, and on one with a planted slowdown.

Makes a repository of its own with four backends, and measures its commits against each other on five cases,
20 cells in all. Needs attnbench-selftest. Run on a quiet machine::

    python tests/benchmarks/gate.py [--rounds N] [--plant PERCENT]

--plant: one backend of the head, another each round, takes so many percent longer; identical commits without.
Prints verdicts by kind, the seconds of each comparison, and the verdicts of other rules on the same samples.
"""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from pathlib import Path

from attnbench_selftest.live import CASES, Repository
from attnbench_selftest.live import NAMES as ALL_NAMES

NAMES = tuple(name for name in ALL_NAMES if name.endswith("_a"))
"""One backend of each kernel; the others are copies of them."""


def peers(path: Path, truth: dict[str, bool]) -> Counter[str]:
    """Count the verdicts of other decision rules on the samples of a live run, planted or not."""
    from attnbench.plugins.registry import load_registry
    from attnbench.results.format import read_run

    run, said = read_run(path), Counter[str]()
    rules = load_registry().verdict_rules
    for case in run.manifest.cases:
        lines = [line for line in run.repetitions if line.case == case]
        for backend, slower in truth.items():
            sides = [
                [
                    [ns / block.calls for block in line.samples[f"{backend}@{side}"] for ns in block.wall_ns]
                    for line in lines
                    if f"{backend}@{side}" in line.samples
                ]
                for side in ("head", "base")
            ]
            for name, entry in rules.items():
                word = entry.record.decide(sides[0], sides[1])
                said[f"{name} {'planted' if slower else 'identical'} {word}"] += 1
    return said


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plant", type=float, default=0.0, metavar="PERCENT")
    chosen = parser.parse_args()
    backends = [word for name in NAMES for word in ("--backend", name)]
    ours, others, seconds, worst = Counter[str](), Counter[str](), [], []
    for number in range(chosen.rounds):
        with tempfile.TemporaryDirectory() as folder:
            project, out = Repository(Path(folder)), Path(folder) / "live.jsonl"
            planted = {NAMES[number % len(NAMES)]: chosen.plant / 100} if chosen.plant else {}
            project.commit(planted)
            _, printed, taken_s = project.attnbench(
                "compare", "--ref", "HEAD~", "--head", "HEAD", "--all", *CASES, *backends,
                "--out", str(out), "--format", "json",
            )  # fmt: skip
            others += peers(out, {name: name in planted for name in NAMES})
        cells = json.loads(printed)["cells"]
        seconds.append(taken_s)
        found = Counter(
            f"{'planted' if cell['backend'] in planted else 'identical'} {cell['verdict']}" for cell in cells
        )
        ours += found
        worst += [
            cell["ratio"] for cell in cells if cell["verdict"] == "slower" and cell["backend"] not in planted
        ]
        print(f"round {number + 1}: {taken_s:.0f} s, {dict(sorted(found.items()))}", flush=True)
    print(f"\nattnbench compare: {dict(sorted(ours.items()))}")
    print(f"seconds a comparison: {min(seconds):.0f} to {max(seconds):.0f}; false slower ratios: {worst}")
    for name, count in sorted(others.items()):
        print(f"  {name}: {count}")


if __name__ == "__main__":
    main()
