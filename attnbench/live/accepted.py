"""What the gate file of the base side accepts already: it is part of the times of that side."""

from __future__ import annotations

from pathlib import Path

from attnbench.compare.gate import Gate, gate_of, rule_words, without_accepted
from attnbench.live.repository import commit_of, repository_of
from attnbench.types.errors import BadFile
from attnbench.types.words import first_of


def accepting_anew(gate: Gate, file: Path, ref: str, cwd: Path) -> tuple[Gate, tuple[str, ...]]:
    """Return the gate of a file without the entries that it has at a commit, and a warning if there are any.

    file: of the gate; outside of the repository of ``cwd`` it has no earlier state, and nothing changes.

    Raises:
        BadInput: no repository, or no such commit.
    """
    repository = repository_of(cwd)
    place = file.absolute().resolve()
    if not place.is_relative_to(repository.top):
        return gate, ()
    name = place.relative_to(repository.top).as_posix()
    text = repository.ask("show", f"{commit_of(repository, ref)}:{name}")
    try:
        before = gate_of(text, Gate(), name)
    except BadFile:
        # The gate of the base side accepts nothing if it can't be read.
        return gate, ()
    gate, there = without_accepted(gate, before)
    if not there:
        return gate, ()
    cells = first_of(tuple(dict.fromkeys(map(rule_words, there))), _MOST_NAMED, "; ")
    return gate, (f"accepted in {ref} already, so judged anew; remove from {name}: {cells}",)


_MOST_NAMED = 1
