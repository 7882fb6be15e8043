"""Rewrite the transcripts with the present output: ``python tests/transcripts/regenerate.py [NAME]...``.

NAME is a file of ``golden/`` without its ending. Without names it rewrites all. Read the diff afterwards.
"""

from __future__ import annotations

import sys

from transcripts import GOLDEN, Recorder, stored


def main(names: list[str]) -> None:
    """Rewrite the files."""
    paths = [GOLDEN / f"{name}.txt" for name in names] or sorted(GOLDEN.glob("*.txt"))
    with Recorder() as recorder:
        for path in paths:
            parts = [recorder.record(line).text() if line else text for line, text in stored(path)]
            path.write_text("".join(parts), encoding="utf-8")
            print(path.name, sum(part.startswith("$") for part in parts))


if __name__ == "__main__":
    main(sys.argv[1:])
