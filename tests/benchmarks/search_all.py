"""Search all installed backends, or some, for cases on which they are wrong: a table.

    python tests/benchmarks/search_all.py [--seconds 60] [--seed N] [BACKEND]...

Those that can't run on this machine are left out. The exit status is 1 if one of them is wrong somewhere.
"""

from __future__ import annotations

import argparse
import sys
from random import randrange

from attnbench.plugins.registry import load_wanted
from attnbench.search.run import search
from attnbench.testing.cases import absent


def main() -> int:
    """Print the table, and each failure after it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = randrange(10**9) if options.seed is None else options.seed
    registry = load_wanted()
    wrong = []
    print(f"seed {seed}\n\n| backend | cases | pairs met | triples | declined | late | wrong |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    names = options.backends or list(registry.backends)
    # Before the first search, since a name may be wrong.
    for name in [name for name in names if not absent(registry.backend(name))]:
        found = search(name, registry, options.seconds, seed)
        print(
            f"| `{name}` | {found.asked} | {found.met} of {found.possible} | {found.triples:.0%} "
            f"| {found.declined} | {len(found.late)} | {len(found.failures) + found.more} |",
            flush=True,
        )
        wrong += [(name, failure) for failure in found.failures]
    for name, failure in wrong:
        needed = ", ".join(failure.shrunk.needed) or "a plain case"
        print(f"\n{name}: {failure.outcome.problem}\n  {failure.point}\n  needs {needed}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
