"""Give reference runs digests that were measured before there were any: python results/add_digests.py

A file is rewritten only if it has no digests, and if each number of its records follows from its samples:
attnbench checks that when it reads such a file. Nothing else in it changes.
"""

from __future__ import annotations

from pathlib import Path

from attnbench.results.digest import digested
from attnbench.results.format import read_run


def main() -> None:
    """Rewrite the files beside this one that need it."""
    for path in sorted(Path(__file__).parent.glob("reference-*.jsonl")):
        if read_run(path).digest is None:
            path.write_bytes(b"".join(digested(path.read_bytes().splitlines())))
            read_run(path)


if __name__ == "__main__":
    main()
