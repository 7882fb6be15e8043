"""How many faulty kernels a search finds: the forty of ``mutants.py``, or those for batches. A table by seed.

    python tests/benchmarks/search_score.py [--seconds 60] [--seed N]... [--kernels NAME] [--right SECONDS]

``--kernels batch_mutants`` searches those of ``batch_mutants.py``, packed and paged.
The search asks the same cases of all of them, since they declare the same. So it is made once for each seed,
with a right kernel that tells which faults its calls would show, and each such fault is then judged on that
case by itself. A minute of two cores is 120 s of CPU time here, in one process, so that other work on the
machine changes nothing. ``--right`` searches each of the twenty right kernels for so long; the exit status is
1 if one of them is refused.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
CORES = 2


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--kernels", choices=("mutants", "batch_mutants"), default="mutants")
    parser.add_argument("--right", type=float, default=0.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = options.seed or [1, 2, 3]
    found = {seed: faults_found(seed, options.seconds, options.kernels) for seed in seeds}
    print_table(found, options.seconds, options.kernels)
    return right_kernels(seeds[0], options.right) if options.right else 0


def faults_found(seed: int, seconds: float, kernels: str = "mutants") -> dict[str, int]:
    """Return after how many cases of a search each fault was found, by the name of its backend."""
    import torch

    from attnbench.plugins.registry import load_wanted
    from attnbench.search.covering import Covering
    from attnbench.search.space import space_of
    from attnbench.testing.cases import rules_of
    from attnbench.testing.judge import rules_in
    from attnbench.trial.judge import judge

    torch.set_num_threads(1)
    registry = load_wanted([str(HERE / f"{kernels}.py")])
    entry = registry.backends["mutants_watched"]
    rules = {rule.name: rule for rule in rules_of(entry.record, rules_in(registry))}
    covering = Covering(space_of(entry.record, rules), Random(seed))
    found: dict[str, int] = {}
    spent, asked = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "fired"
        os.environ["ATTNBENCH_MUTANTS_FIRED"] = str(told)
        while spent < CORES * seconds:
            drawn = covering.draw()
            if drawn is None:
                break
            told.write_text("")
            begun = time.process_time()
            source = registry.rules[drawn.point.case.rule].source
            outcome = judge(drawn.point, "mutants_watched", entry.source, source)
            covering.count(drawn.row)
            spent += time.process_time() - begun
            asked += 1
            if outcome.status in ("wrong", "error"):
                print(f"the right kernel is refused: {drawn.point}: {outcome.problem}")
            for name in {line.split()[0] for line in told.read_text().splitlines()} - found.keys():
                faulty = registry.backends[f"mutant_{name}"]
                if judge(drawn.point, f"mutant_{name}", faulty.source, source).status in ("wrong", "error"):
                    found[name] = asked
    print(f"seed {seed}: {asked} cases, {len(covering.met)} of {covering.possible} pairs", file=sys.stderr)
    return found


def print_table(found: dict[int, dict[str, int]], seconds: float, kernels: str = "mutants") -> None:
    """Print each fault with the case that found it, and how many were found of each number of properties."""
    mutants = import_module(kernels).MUTANTS

    print(f"| fault | properties |{''.join(f' seed {seed} |' for seed in found)}")
    print(f"|---|---|{'---:|' * len(found)}")
    for mutant in mutants:
        words = ", ".join(each.words for each in mutant.properties)
        cells = "".join(f" {one.get(mutant.name, '–')} |" for one in found.values())
        print(f"| {mutant.name} | {words} |{cells}")
    for count in (2, 3):
        names = [mutant.name for mutant in mutants if len(mutant.properties) == count]
        shares = ", ".join(f"{sum(name in one for name in names)}" for one in found.values())
        print(f"\nof {len(names)} faults with {count} properties {seconds:.0f} s found: {shares}")


def right_kernels(seed: int, seconds: float) -> int:
    """Search each right kernel; print what was refused, and return an exit status."""
    from attnbench.plugins.registry import load_wanted
    from attnbench.search.run import search
    from attnbench.testing.judge import brought_by

    path = str(HERE / "right_kernels.py")
    names = brought_by([path], load_wanted([path])).backends
    asked, refused = 0, 0
    for name in names:
        one = search(name, load_wanted([path]), seconds, seed)
        asked += one.asked
        refused += bool(one.failures)
        for failure in one.failures:
            print(f"{name}: {failure.point}: {failure.outcome.problem}")
    print(f"\nright kernels refused: {refused} of {len(names)}, in {asked} cases, seed {seed}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
