"""Search all installed backends, or some, for cases on which they are wrong: a table.

    python tests/benchmarks/search_all.py [--seconds 60] [--seed N] [--out FILE] [BACKEND]...

Those that can't run on this machine are left out. The exit status is 1 if one of them is wrong somewhere.
With --out each result is appended to a file as JSON, and backends that it has already are left out. So hours
of searching may be done in parts. ``python tests/docs/written.py`` makes a table of
docs/measured/searches.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import randrange

from attnbench.plugins.registry import load_wanted
from attnbench.search.run import search
from attnbench.testing.cases import absent


def main() -> int:
    """Print the table, and each failure on the standard error stream."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    seed = randrange(10**9) if options.seed is None else options.seed
    registry = load_wanted()
    wrong = 0
    print(f"seed {seed}\n\n| backend | cases | pairs met | triples | declined | late | wrong |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    names = options.backends or list(registry.backends)
    # Before the first search, since a name may be wrong.
    done = searched(options.out)
    for name in [name for name in names if name not in done and not absent(registry.backend(name))]:
        found = search(name, registry, options.seconds, seed)
        print(
            f"| `{name}` | {found.asked} | {found.met} of {found.possible} | {found.triples:.0%} "
            f"| {found.declined} | {len(found.late)} | {len(found.failures) + found.more} |",
            flush=True,
        )
        wrong += len(found.failures) + found.more
        # At once, since a search of hours may be ended before its table is.
        failures = [
            {
                "problem": failure.outcome.problem,
                "point": str(failure.point),
                "found": str(failure.found),
                "alone": failure.alone,
                "needs": list(failure.shrunk.needed),
            }
            for failure in found.failures
        ]
        for failure in failures:
            print(json.dumps({"backend": name, **failure}), file=sys.stderr, flush=True)
        if options.out is not None:
            source = registry.backends[name].source
            row = {
                "backend": name,
                "package": f"{source.distribution} {source.version}",
                "date": datetime.now(UTC).date().isoformat(),
                "seconds": options.seconds,
                "seed": seed,
                "cases": found.asked,
                "pairs": [found.met, found.possible],
                "triples": found.triples,
                "wrong": len(found.failures) + found.more,
                "failures": failures,
            }
            with options.out.open("a") as file:
                file.write(f"{json.dumps(row)}\n")
    return int(bool(wrong))


def searched(path: Path | None) -> set[str]:
    """Return the backends that a file of results has."""
    if path is None or not path.exists():
        return set()
    return {json.loads(line)["backend"] for line in path.read_text().splitlines()}


if __name__ == "__main__":
    sys.exit(main())
