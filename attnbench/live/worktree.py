"""Worktrees of commits in a temporary folder, put away whatever happens; the user's own tree is left alone.

Submodules are not checked out in them, files of git LFS stay the pointers that git has, and no hook runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnbench.live.git import GitFailed, Repository, git
from attnbench.types.errors import BadInput

_OWNER = "owner"
"""The file in each folder of ours that its process holds a lock on. The lock ends with the process."""


@dataclass(frozen=True)
class Room:
    """A temporary folder of ours for worktrees of one repository."""

    repository: Repository
    folder: Path

    def add(self, commit: str, label: str) -> Path:
        """Check a commit out in a new worktree; gives its folder, whose name is as long for every side.

        Raises:
            BadInput: git can't: the words are its own.
        """
        tree = self.folder / f"{self.folder.name}-{label}"
        try:
            git(self.repository.top, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        except GitFailed as failure:
            raise BadInput(f"git can't check out {commit[:12]} for the {label} side: {failure}") from None
        return tree


@contextmanager
def room(repository: Repository) -> Iterator[Room]:
    """A folder for worktrees, removed with them in the end. Removes what a killed process left, first.

    Raises:
        BadInput: temporary files would lie within the repository.
    """
    temporary = Path(tempfile.gettempdir()).resolve()
    if temporary.is_relative_to(repository.top):
        raise BadInput(
            f"temporary files ({str(temporary)!r}) would lie in the repository: set TMPDIR to another folder"
        )
    remove_leftovers(repository, temporary)
    folder = Path(tempfile.mkdtemp(prefix=f"{_ours()}-", dir=temporary))
    lock = os.open(folder / "new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        # It gets its name when it is locked: nobody may find it free.
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "new").rename(folder / _OWNER)
        yield Room(repository, folder)
    finally:
        _put_away(repository, folder)
        os.close(lock)


def remove_leftovers(repository: Repository, temporary: Path) -> None:
    """Remove worktrees and folders of ours, on this machine, whose process is gone."""
    folders = {tree.parent for tree in _worktrees(repository) if _is_ours(tree)}
    folders |= set(temporary.glob(f"{_ours()}-*"))
    for folder in sorted(folders):
        with _nobodys(folder) as free:
            if free:
                _put_away(repository, folder)


def _put_away(repository: Repository, folder: Path) -> None:
    """Folders first: git then only forgets the worktree, even one that it had not finished."""
    trees = [tree for tree in _worktrees(repository) if tree.parent == folder]
    shutil.rmtree(folder, ignore_errors=True)
    for tree in trees:
        # Whatever keeps git from it, the next start tries again.
        with contextlib.suppress(GitFailed):
            git(repository.top, "worktree", "remove", "--force", "--force", str(tree))


def _worktrees(repository: Repository) -> list[Path]:
    lines = repository.ask("worktree", "list", "--porcelain").splitlines()
    return [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]


@contextmanager
def _nobodys(folder: Path) -> Iterator[bool]:
    """Whether no living process holds a folder; it is held by us meanwhile."""
    try:
        lock = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # The folder is gone, and what git remembers of it can go too. One without the file is being made.
        yield not folder.exists()
        return
    except OSError:
        # Another user's, whose folders nobody else may look into.
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def _is_ours(tree: Path) -> bool:
    return re.fullmatch(re.escape(_ours()) + r"-\w+-(base|head)", tree.name) is not None and (
        tree.name.startswith(tree.parent.name + "-")
    )


def _ours() -> str:
    """How our folders are called on this machine: another that shares the repository has its own."""
    return f"attnbench-live-{hashlib.sha256(platform.node().encode()).hexdigest()[:6]}"
