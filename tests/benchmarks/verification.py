"""What it costs to renew inputs while calls are timed and to compare outputs of timed calls.

Runs the default suite in pairs: with and without it. Run on a quiet machine::

    python tests/benchmarks/verification.py [--rounds N]

Prints, of each round, the seconds that repetitions took with and without; at the end the median of their
ratio.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import replace
from pathlib import Path
from statistics import median

from attnbench.cases.select import select
from attnbench.plugins.registry import load_registry
from attnbench.results.format import StoredRun
from attnbench.runner.forecast import RunPlan
from attnbench.runner.options import Options
from attnbench.runner.run import start_run

TARGET = 0.15


def measured(options: Options) -> StoredRun:
    registry = load_registry()
    cases = select(["smoke"], registry).cases
    backends = tuple(name for name, entry in registry.backends.items() if not entry.record.compiles)
    with tempfile.TemporaryDirectory() as folder:
        return start_run(RunPlan(cases, backends, registry, options), Path(folder))


def repetitions_s(stored: StoredRun) -> float:
    assert stored.finished is not None
    return stored.finished.phases_s["repetitions"]


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    # What comes before repetitions is the same for both, and not what is compared.
    options = Options(
        without=("variant_case", "near_duplicate", "one_hot", "large_logits", "unlikely_values")
    )
    longer = []
    for number in range(chosen.rounds):
        one = measured(options)
        other = measured(replace(options, without=(*options.without, "refreshed")))
        longer.append(repetitions_s(one) / repetitions_s(other) - 1)
        calls = sum(record.verified_calls for record in one.records)
        print(
            f"round {number + 1}: {repetitions_s(one):.1f} s with, {repetitions_s(other):.1f} s without: "
            f"{longer[-1]:+.1%}; {calls} calls verified"
        )
    print(f"median: {median(longer):+.1%} longer; asked: {TARGET:.0%}")


if __name__ == "__main__":
    main()
