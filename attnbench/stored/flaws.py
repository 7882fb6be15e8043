"""What of a run isn't there though it should be: one sentence each, for whoever compares it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from attnbench.runner.run_file import StoredRun
from attnbench.types.errors import go_on_words
from attnbench.types.words import count_of


def flaws_of(run: StoredRun) -> Iterator[str]:
    """What a reader of a run must know: cut off, torn, without records or sets that it should have."""
    manifest = run.manifest
    if run.finished is None:
        go_on = go_on_words(run.path, live=bool(manifest.sides), command="attnbench run")
        yield f"{run.path}: the run was cut off; {go_on}"
    else:
        missing = len(set(manifest.cases)) * len(set(manifest.backends)) - len(run.records)
        yield from missing_records(run.path, missing)
    if run.torn:
        yield f"{run.path}: its last line was cut off and is left out"
    there = Counter((line.case, name) for line in run.sets for name, blocks in line.blocks.items() if blocks)
    timed = manifest.protocol.get("timed") is not False
    lost = [r.case for r in run.records if timed and r.status == "ok" and r.sets > there[r.case, r.backend]]
    yield from missing_sets(run.path, lost)


def missing_records(path: object, missing: int) -> Iterator[str]:
    """That a run which went to its end has fewer records than it should; nothing where it hasn't."""
    if missing > 0:
        yield f"{path}: {missing} of its records are missing, though it says that it went to its end"


def missing_sets(path: object, cases: Collection[str]) -> Iterator[str]:
    """That sets are missing which were there when the run was made, by the cases; nothing where none is."""
    found = list(dict.fromkeys(cases))
    if found:
        yield f"{path}: sets are missing that were measured, on {first_of(found)}"


def first_of(cases: Sequence[str]) -> str:
    """The first of one or more cases, and how many more there are."""
    return cases[0] + (f" and {count_of(len(cases) - 1, 'more case')}" if len(cases) > 1 else "")
