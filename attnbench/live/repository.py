"""A git repository, the commits that users name, and the files of a commit in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from attnbench.ipc.process import kill_group
from attnbench.plugins.sources import GROUP
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.files import parse_toml, read_text
from attnbench.types.words import clean, nearest

_OWN_TO_A_HOOK = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
    "GIT_NAMESPACE", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip
"""Variables that git sets for hooks. With them git would write to the user's index."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",  # a watcher would outlive the checkout
    "core.sparseCheckout=false",
    "core.splitIndex=false",  # the shared part would be written beside the user's index
    "submodule.recurse=false",
    "gc.auto=0",
)


@dataclass(frozen=True)
class Repository:
    """A git repository with files: its top folder, symbolic links resolved."""

    top: Path

    def holds(self, path: Path) -> bool:
        """Return whether a file or folder is code of this repository: tracked, or at least not ignored.

        A file in another repository inside this one (a submodule, a clone) is not its code.
        """
        inner = self.ask("rev-parse", "--show-toplevel", at=path if path.is_dir() else path.parent)
        if inner != str(self.top):
            return False
        return bool(self.tracked(path)) or not self.ask("check-ignore", "--", str(path))

    def tracked(self, path: Path) -> frozenset[Path]:
        """Return the files at or under a path that git knows."""
        names = self.ask("--literal-pathspecs", "ls-files", "-z", "--", str(path))
        return frozenset(self.top / name for name in names.split("\0") if name)

    def ask(self, *words: str, at: Path | None = None) -> str:
        """Return git's output without the last newline; "" where git fails."""
        try:
            return git(at or self.top, *words).rstrip("\n")
        except GitFailed:
            return ""


class GitFailed(Exception):  # noqa: N818
    """git ended with an error; the text is its own reason."""


def git(folder: Path, *words: str, index: Path | None = None) -> str:
    """Run git in a folder, and return its output. index: in place of the repository's.

    git runs in a session of its own, so that Ctrl-C reaches this process alone, which then ends git and its
    filters. An index that git leaves locked is a temporary one.

    Raises:
        GitFailed: git ends with an error. BadInput: git is not installed.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    program = shutil.which("git")
    if program is None:
        raise BadInput("a comparison of commits needs git, which is not installed")
    variables = {name: value for name, value in os.environ.items() if name not in _OWN_TO_A_HOOK}
    variables |= {} if index is None else {"GIT_INDEX_FILE": str(index)}
    variables |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }
    # A signal that came between the start of git and the next line would leave it running.
    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    try:
        process = subprocess.Popen(
            [program, "-C", str(folder), *settings, *words],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            out, errors = process.communicate()
        except BaseException:
            kill_group(process.pid)
            process.communicate()
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if process.returncode != 0:
        raise GitFailed(_reason(os.fsdecode(errors)) or f"exit status {process.returncode}")
    return os.fsdecode(out)


def _reason(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    return clean(said[0].partition(": ")[2] or said[0]) if said else ""


def repository_of(folder: Path) -> Repository:
    """Return the repository that a folder lies in.

    Raises:
        BadInput: git is not installed, or there is no repository, or it has no files.
    """
    try:
        top = git(folder, "rev-parse", "--show-toplevel").rstrip("\n")
    except GitFailed as failure:
        raise BadInput(
            f"{str(folder)!r} is not in a git working tree: go to the repository that has the "
            f"commits (git: {failure})"
        ) from None
    return Repository(Path(top).resolve())


def commit_of(repository: Repository, ref: str) -> str:
    """Return the full hash of the commit that a ref names.

    Raises:
        BadInput: the ref names no commit here. The message names the nearest ref, or mends a shallow clone.
    """
    # A leading dash makes an option, a leading ^ excludes a range.
    if ref and not ref.startswith(("-", "^")):
        # Two steps, because in :/TEXT a suffix would belong to the text.
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
    guess = nearest(ref, repository.ask("for-each-ref", "--format=%(refname:short)").splitlines())
    hint = f"; did you mean {guess!r}?" if guess else ": give a branch, a tag or a hash"
    raise BadInput(f"no commit {ref!r} in {str(repository.top)!r}{hint}")


class _Project(Struct, frozen=True, rename="kebab"):
    name: str = ""
    entry_points: dict[str, dict[str, str]] = {}


class _File(Struct, frozen=True):
    project: _Project = _Project()


def commits_lacking(repository: Repository, base: str, head: str) -> int:
    """Count the commits of base's history that head's lacks; 0 where git can't say."""
    return int(repository.ask("rev-list", "--count", base, f"^{head}") or 0)


def declared_plugins(repository: Repository, commit: str) -> tuple[Source, ...]:
    """Return the plugins that the ``pyproject.toml`` of a commit declares; "" for the user's tree.

    What is installed here may be of a commit that has other plugins.
    """
    file = repository.top / "pyproject.toml"
    try:
        text = repository.ask("show", f"{commit}:{file.name}") if commit else read_text(file)
        project = msgspec.convert(parse_toml(text), _File).project
    except (OSError, ValueError, msgspec.ValidationError):
        return ()
    points = project.entry_points.get(GROUP, {})
    return tuple(Source(name, module, project.name, "uninstalled") for name, module in points.items())


@dataclass(frozen=True)
class Checkouts:
    """A temporary folder for files of commits of one repository."""

    repository: Repository
    folder: Path

    def add(self, commit: str, label: str) -> Path:
        """Write the files of a commit into a new folder, and return it; its name is as long for every side.

        git gets an index of its own for this, so that nothing in the repository changes and no hook runs.

        Raises:
            BadInput: git can't write them; the message has its words.
        """
        tree = self.folder / f"attnbench-{label}"
        tree.mkdir()
        words = ("--work-tree", str(tree), "read-tree", "--reset", "-u", commit)
        try:
            git(self.repository.top, *words, index=self.folder / f"index-{label}")
        except GitFailed as failure:
            raise BadInput(f"git can't check out {commit[:12]} for the {label} side: {failure}") from None
        return tree


@contextmanager
def checkouts(repository: Repository) -> Iterator[Checkouts]:
    """Make a folder for the files of commits; it is removed at the end of the block.

    Raises:
        BadInput: temporary files would lie within the repository.
    """
    temporary = Path(tempfile.gettempdir()).resolve()
    if temporary.is_relative_to(repository.top):
        raise BadInput(
            f"temporary files ({str(temporary)!r}) would lie in the repository: set TMPDIR to another folder"
        )
    with tempfile.TemporaryDirectory(
        prefix="attnbench-live-", dir=temporary, ignore_cleanup_errors=True
    ) as folder:
        yield Checkouts(repository, Path(folder))
