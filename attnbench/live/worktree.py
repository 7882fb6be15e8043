"""Worktrees of commits in a temporary folder, removed whatever happens; git is asked without changes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnbench.types.errors import BadInput
from attnbench.types.words import clean, nearest

_ENDING_S = 10.0

_OWN_TO_A_HOOK = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
    "GIT_NAMESPACE", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip
"""Variables that git sets for hooks: with them a worktree would be checked out into the user's index."""

_SETTINGS = (
    "core.hooksPath=/dev/null",  # a hook of the user's would run at the checkout
    "core.fsmonitor=false",  # a watcher would outlive the worktree
    "submodule.recurse=false",
    "gc.auto=0",
    "advice.detachedHead=false",
)


@dataclass(frozen=True)
class Repository:
    """A git repository with files: its top folder, symbolic links resolved."""

    top: Path

    def holds(self, path: Path) -> bool:
        """Whether a file or folder is code of this repository: tracked, or at least not ignored.

        What lies in another repository within (a submodule, a clone) isn't, nor an environment.
        """
        folder = path if path.is_dir() else path.parent
        inner = self.ask("rev-parse", "--show-toplevel", at=folder)
        return inner == str(self.top) and (bool(self.tracked(path)) or self._counts(path))

    def _counts(self, path: Path) -> bool:
        try:
            git(self.top, "check-ignore", "--quiet", "--", str(path))
        except GitFailed:
            return True
        return False

    def tracked(self, path: Path) -> frozenset[Path]:
        """The files at or under a path that git knows."""
        names = self.ask("--literal-pathspecs", "ls-files", "-z", "--", str(path))
        return frozenset(self.top / name for name in names.split("\0") if name)

    def ask(self, *words: str, at: Path | None = None) -> str:
        """What git says, without the end of its line; "" where it fails."""
        try:
            return git(at or self.top, *words).rstrip("\n")
        except GitFailed:
            return ""


class GitFailed(Exception):  # noqa: N818
    """git ended with an error; the text is the line in which it says why."""


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; gives what it says.

    It runs in a session of its own: Ctrl-C reaches us, and we let it clean up after itself.

    Raises:
        GitFailed: it ends with an error. BadInput: there is no git.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    said = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
    process = subprocess.Popen(
        [_program(), "-C", str(folder), *settings, *words],
        env={name: value for name, value in os.environ.items() if name not in _OWN_TO_A_HOOK} | said,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate()
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        raise GitFailed(_reason(os.fsdecode(errors)) or f"exit status {process.returncode}")
    return os.fsdecode(out)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let git end what it has begun, with the filters that it started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_ENDING_S)
            return


def _program() -> str:
    found = shutil.which("git")
    if found is None:
        raise BadInput("commits are compared by git, which is not installed here")
    return found


def _reason(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    return clean(said[0].partition(": ")[2] or said[0]) if said else ""


def repository_of(folder: Path) -> Repository:
    """The repository that a folder lies in.

    Raises:
        BadInput: there is no git, or no repository, or one without files.
    """
    try:
        bare = git(folder, "rev-parse", "--is-bare-repository").strip() == "true"
        top = "" if bare else git(folder, "rev-parse", "--show-toplevel").rstrip("\n")
    except GitFailed as failure:
        if "not a git repository" in str(failure):
            raise BadInput(
                f"{str(folder)!r} is in no git repository: go to the one whose commits are to be compared"
            ) from None
        if "work tree" in str(failure):
            raise BadInput(f"{str(folder)!r} is git's own folder: go to the repository's files") from None
        raise BadInput(f"git can't read the repository at {str(folder)!r}: {failure}") from None
    if bare:
        raise BadInput(f"{str(folder)!r} is a bare repository, without files: go to a clone of it")
    found = Repository(Path(top).resolve())
    if found.ask("rev-parse", "--show-toplevel") != str(found.top):
        raise BadInput(
            f"the files of the repository at {str(folder)!r} lie in {str(found.top)!r}, from where git "
            "doesn't find it (core.worktree): go to a plain clone of it"
        )
    return found


def commit_of(repository: Repository, ref: str) -> str:
    """The full hash of the commit that a ref names.

    Raises:
        BadInput: it names none here; says the nearest, and what a shallow clone needs.
    """
    # What begins so is an option, or what a range leaves out.
    if ref and not ref.startswith(("-", "^")):
        # In two steps: of :/TEXT what follows belongs to the text.
        named = repository.ask("rev-parse", "--verify", "--quiet", ref)
        found = named and repository.ask("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
        if found:
            return found
    if not repository.ask("rev-parse", "--verify", "--quiet", "HEAD"):
        raise BadInput(f"{str(repository.top)!r} has no commit yet")
    if repository.ask("rev-parse", "--is-shallow-repository") == "true":
        raise BadInput(
            f"no commit {ref!r} in this clone, which is shallow: fetch the whole history (git fetch "
            f"--unshallow; in a GitHub workflow fetch-depth: 0 at actions/checkout; in GitLab GIT_DEPTH: 0)"
        )
    known = repository.ask("for-each-ref", "--format=%(refname:short)").splitlines()
    if ref.startswith("-") and ref in known:
        raise BadInput(f"no commit {ref!r}, which reads as an option: give refs/heads/{ref}, or its hash")
    guess = nearest(ref, known)
    hint = f"; did you mean {guess!r}?" if guess else ": a branch, a tag or a hash is needed"
    raise BadInput(f"no commit {ref!r} in {str(repository.top)!r}{hint}")


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
