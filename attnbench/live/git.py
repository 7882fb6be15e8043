"""git, asked in a way that changes nothing of the user's: the repository, and what a ref is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from attnbench.types.errors import BadInput
from attnbench.types.names import nearest
from attnbench.types.words import clean

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
