"""A side of a live comparison: an interpreter, and whose code it imports."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnbench.live.git import Repository, commit_of
from attnbench.live.imported import Imported
from attnbench.live.worktree import Room
from attnbench.types.errors import BadInput
from attnbench.worker.not_from import NOT_FROM, is_code_of

Label = Literal["base", "head"]

UNCOMMITTED = "."
"""The ref that stands for the user's tree as it is."""


@dataclass(frozen=True)
class Side:
    """One of the two.

    name: as the user said it, with the commit. python: the interpreter to start servers with. paths: what
    comes first on the import path of its processes. commit: the full hash, "" where it's of no commit;
    uncommitted: whether it's that commit with what was changed since. tree: the folder that what is measured
    must come from; "" where that is whatever the interpreter has installed. own: the top-level modules that
    are measured. not_from: the user's tree, where this side must not import from it; else "".
    """

    label: Label
    name: str
    python: str
    paths: tuple[str, ...] = ()
    commit: str = ""
    uncommitted: bool = False
    tree: str = ""
    own: tuple[str, ...] = ()
    not_from: str = ""

    def __str__(self) -> str:
        return f"the {self.label} side, {self.name},"

    def environment(self) -> dict[str, str]:
        """Variables that its processes need besides those of this one; they are all that makes a side.

        Safe path: ``python -m`` would put the working folder before everything else, which is the user's
        tree on both sides.
        """
        variables = {"PYTHONSAFEPATH": "1", NOT_FROM: self.not_from}
        if self.tree:
            variables["PYTHONPATH"] = os.pathsep.join(self.paths)
        return variables


def side_of_ref(
    label: Label, ref: str, room: Room, measured: Iterable[Imported], python: str | None = None
) -> Side:
    """The side of a commit, checked out in a worktree; of ``.``, the user's tree as it is, without one.

    measured: what is imported from the repository, as :func:`attnbench.live.imported.measured_modules` says.

    Raises:
        BadInput: no such commit or interpreter, or git can't check it out.
    """
    repository, modules = room.repository, tuple(measured)
    uncommitted = ref == UNCOMMITTED
    commit = commit_of(repository, "HEAD" if uncommitted else ref)
    tree = repository.top if uncommitted else room.add(commit, label)
    roots = [place.parent for module in modules for place in module.locations]
    words = [Path(word).absolute() for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]
    return Side(
        label,
        name=_name(ref, commit),
        python=sys.executable if python is None else interpreter(python),
        paths=tuple(dict.fromkeys(str(_there(path, repository, tree)) for path in [*roots, *words])),
        commit=commit,
        uncommitted=uncommitted,
        tree=str(tree),
        own=tuple(module.name for module in modules),
        not_from="" if uncommitted else str(repository.top),
    )


def side_of_python(label: Label, python: str | None = None) -> Side:
    """The side of what an interpreter has installed; this one's where none is named.

    Raises:
        BadInput: there is no such interpreter.
    """
    found = sys.executable if python is None else interpreter(python)
    return Side(label, name=python or "what is installed here", python=found)


def interpreter(word: str) -> str:
    """An interpreter by its path, by the folder of its environment, or by a command's name.

    Links are not followed: by its own path an interpreter knows its environment.

    Raises:
        BadInput: there is none.
    """
    path = Path(word).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = str(path.absolute()) if path.is_file() else shutil.which(word)
    if found is None or not os.access(found, os.X_OK):
        raise BadInput(f"no interpreter {word!r}: the path of a python, or of its environment, is needed")
    return found


def _name(ref: str, commit: str) -> str:
    """What to call a commit: as the user did, with the beginning of its hash."""
    if ref == UNCOMMITTED:
        return f"uncommitted work on {commit[:9]}"
    return commit[:9] if commit.startswith(ref) else f"{ref} ({commit[:9]})"


def _there(path: Path, repository: Repository, tree: Path) -> Path:
    """The same place in another tree; what is no code of the repository stays where it is."""
    if not is_code_of(path, repository.top):
        return path
    return tree / path.resolve().relative_to(repository.top)
