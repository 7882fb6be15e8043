"""Both sides of a live comparison, made and put away: commits in worktrees, or interpreters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnbench.live.asked import ask_all
from attnbench.live.facts import Facts
from attnbench.live.git import repository_of
from attnbench.live.imported import measured_modules
from attnbench.live.judged import notes, refuse_what_misleads
from attnbench.live.side import UNCOMMITTED, Label, Side, interpreter, side_of_python, side_of_ref
from attnbench.live.worktree import room
from attnbench.plugins.registry import Registry
from attnbench.types.errors import BadInput


@dataclass(frozen=True)
class TwoSides:
    """What is measured against what.

    base_facts, head_facts: what each has, as it says itself. notes: what a reader must know, one
    sentence each.
    """

    base: Side
    head: Side
    base_facts: Facts
    head_facts: Facts
    notes: tuple[str, ...] = field(default=())

    def backends(self) -> dict[str, frozenset[str]]:
        """By label, the names of the backends that the side has."""
        return {
            self.base.label: frozenset(self.base_facts.backends),
            self.head.label: frozenset(self.head_facts.backends),
        }

    def alike(self) -> frozenset[str]:
        """Backends whose plugin is the same file on both sides, with the same libraries."""
        if self.base_facts.versions != self.head_facts.versions:
            return frozenset()
        return frozenset(
            name
            for name, module in self.base_facts.backends.items()
            if self.head_facts.backends.get(name) == module
            and self.base_facts.files[module] == self.head_facts.files[module]
        )

    def manifest(self) -> dict[str, dict[str, Any]]:
        """By label, what a run file says of the side. Names no folder."""
        return {
            side.label: {
                "name": side.name,
                "commit": side.commit,
                "uncommitted": side.uncommitted,
                "versions": facts.versions,
            }
            for side, facts in ((self.base, self.base_facts), (self.head, self.head_facts))
        }


@contextmanager
def two_sides(
    ref: str | None,
    head: str | None,
    ref_python: str | None,
    head_python: str | None,
    registry: Registry,
    cwd: Path,
) -> Iterator[TwoSides]:
    """Make both sides; worktrees are there until the end of the block and removed however it ends.

    ref, head: commits, by any name that git knows; ``.`` is the user's tree with uncommitted work; None is
    what the interpreter has installed. ref_python, head_python: interpreters; None is this one. registry:
    what is loaded here, whose modules say what is measured. cwd: where the repository is looked for.

    Raises:
        BadInput: no repository, no such commit or interpreter, one that can't be measured, or both sides
            would be the same code.
    """
    _refuse_one_side(ref, head, ref_python, head_python)
    _refuse_files(registry)
    with ExitStack() as putting_away:
        if ref is None and head is None:
            sides = side_of_python("base", ref_python), side_of_python("head", head_python)
        else:
            repository = repository_of(cwd)
            modules = ["attnbench", *(source.module for source in registry.plugins)]
            measured = measured_modules(modules, repository)
            place = putting_away.enter_context(room(repository))

            def made(label: Label, word: str | None, python: str | None) -> Side:
                if word is None:
                    return side_of_python(label, python)
                return side_of_ref(label, word, place, measured, python)

            sides = made("base", ref, ref_python), made("head", head, head_python)
        told = ask_all(sides, registry.plugins)
        refuse_what_misleads(*sides, told)
        yield TwoSides(
            *sides,
            told["base"],
            told["head"],
            tuple(note for side in sides for note in notes(side, told[side.label], registry.faults)),
        )


def _refuse_files(registry: Registry) -> None:
    for source in registry.plugins:
        if source.path:
            raise BadInput(
                f"{source.distribution} is a file, which would be the same on both sides: live, plugins are "
                f"imported by name, from what is installed (pip install -e .) or as --plugin {source.name}"
            )


def _refuse_one_side(
    ref: str | None, head: str | None, ref_python: str | None, head_python: str | None
) -> None:
    if ref is not None or head is not None:
        if ref == head == UNCOMMITTED:
            raise BadInput("both sides would be the user's tree: name a commit for one of them, as HEAD")
        return
    pythons = [sys.executable if word is None else interpreter(word) for word in (ref_python, head_python)]
    if pythons[0] == pythons[1]:
        raise BadInput(f"both sides would be the same code: that of {pythons[0]!r}")
