"""Files of commits come and go; what is the user's stays bit for bit."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_project import Install, Project, run_git

from attnbench.live.repository import checkouts, repository_of
from attnbench.types.errors import BadInput

HOLDER = """
import signal, sys, tempfile
from pathlib import Path
from attnbench.live.repository import checkouts, repository_of
tempfile.tempdir = sys.argv[2]
# Where these tests run in the background, a shell has had it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with checkouts(repository_of(Path(sys.argv[1]))) as ours:
    ours.add("HEAD", "base")
"""


def readable(fd: int, within_s: float = 60) -> bool:
    """Whether there is something to read within that time; of a process, whether it has ended."""
    return bool(select.select([fd], [], [], within_s)[0])


def state(repo: Path) -> dict[str, object]:
    """Everything of a repository that a user could miss, and all files, git's own settings and refs too."""
    files = {
        path: path.read_bytes() for path in repo.rglob("*") if path.is_file() and path.name != "index.lock"
    }
    asked = [
        ("status", "--porcelain"), ("rev-parse", "HEAD"), ("symbolic-ref", "HEAD"), ("worktree", "list"),
        ("stash", "list"), ("for-each-ref",), ("reflog",), ("diff", "--cached"),
        ("config", "--local", "--list"),
    ]  # fmt: skip
    return {"files": files} | {" ".join(words): run_git(repo, *words) for words in asked}


@pytest.fixture
def busy(project: Install) -> Project:
    """A project in the middle of work: staged, unstaged, untracked, ignored and stashed changes."""
    there = project("mini_s")
    there.commit(mini_s="old = 1", removed="", gitignored="")
    there.write(mini_s="stashed = 1")
    run_git(there.repo, "stash", "--quiet")
    (there.repo / ".gitignore").write_text("build/\n")
    (there.repo / "build").mkdir()
    (there.repo / "build" / "made").write_text("made")
    there.write(mini_s="staged = 1", untracked="")
    run_git(there.repo, "add", "mini_s.py")
    there.write(mini_s="unstaged = 1")
    (there.repo / "removed.py").unlink()
    run_git(there.repo, "status")  # refreshes the index once
    return there


def test_a_checkout_has_the_files_of_the_commit_and_the_user_keeps_theirs(
    busy: Project, own_temporary_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hook of the user runs, and variables that git sets for hooks do not count."""
    hook = busy.repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)
    before = state(busy.repo)
    monkeypatch.setenv("GIT_DIR", str(busy.repo / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(busy.repo / ".git" / "index"))
    with checkouts(repository_of(busy.repo)) as ours:
        one, other = ours.add("HEAD", "base"), ours.add("HEAD", "head")
        assert one != other
        assert len(str(one)) == len(str(other))
        assert sorted(path.name for path in one.iterdir()) == ["gitignored.py", "mini_s.py", "removed.py"]
        assert (one / "mini_s.py").read_text() == "old = 1"
        (one / "mini_s.py").write_text("changed there")
        (one / "__pycache__").mkdir()
        meanwhile = state(busy.repo)
    assert state(busy.repo) == meanwhile == before
    assert list(own_temporary_folder.iterdir()) == []
    assert not (tmp_path / "ran").exists()


def test_from_a_worktree_of_the_users_own_with_few_files(busy: Project, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    run_git(busy.repo, "worktree", "add", "--quiet", "-b", "feature", str(mine))
    run_git(mine, "sparse-checkout", "set", "nothing")
    before = state(busy.repo)
    with checkouts(repository_of(mine)) as ours:
        assert (ours.add("feature", "head") / "mini_s.py").exists()
    assert state(busy.repo) == before


def test_a_checkout_that_fails_is_one_sentence_and_leaves_nothing(
    busy: Project, own_temporary_folder: Path
) -> None:
    before = state(busy.repo)
    with (
        pytest.raises(BadInput, match="can't check out 000000000000 for the base side: "),
        checkouts(repository_of(busy.repo)) as ours,
    ):
        ours.add("0" * 40, "base")
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []


def test_temporary_files_in_the_repository_are_refused(
    busy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(busy.repo / "build"))
    with pytest.raises(BadInput, match="TMPDIR"), checkouts(repository_of(busy.repo)):
        pass


def test_a_checkout_is_ended_in_the_middle(busy: Project, own_temporary_folder: Path) -> None:
    """git stands still in a filter until we are interrupted; half a checkout is removed like a whole one."""
    fifo = own_temporary_folder.parent / "fifo"
    os.mkfifo(fifo)
    told = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    # Opened for both it waits for no reader: where this process is killed, none of them lasts for long.
    run_git(busy.repo, "config", "filter.slow.smudge", f"exec 3<>{fifo}; echo $$ >&3; exec sleep 100")
    run_git(busy.repo, "config", "filter.slow.required", "true")
    (busy.repo / ".git" / "info").mkdir(exist_ok=True)
    (busy.repo / ".git" / "info" / "attributes").write_text("mini_s.py filter=slow\n")
    before = state(busy.repo)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(busy.repo), str(own_temporary_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert readable(told), "the filter has not begun"
    filters = os.pidfd_open(int(os.read(told, 100)))
    assert not readable(filters, within_s=0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert readable(filters), "the filter goes on"
    os.close(told)
    os.close(filters)
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []
