"""Worktrees come and go; what is the user's stays bit for bit."""

from __future__ import annotations

import hashlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from kernel_project import Install, Project, run_git

from attnbench.live.worktree import Repository, _ours, remove_leftovers, repository_of, room
from attnbench.types.errors import BadInput

HOLDER = """
import signal, sys, tempfile
from pathlib import Path
from attnbench.live.worktree import repository_of
from attnbench.live.worktree import room
tempfile.tempdir = sys.argv[2]
# Where these tests run in the background, a shell has had it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with room(repository_of(Path(sys.argv[1]))) as ours:
    ours.add("HEAD", "base")
    ours.add("HEAD", "head")
    print("there", flush=True)
    sys.stdin.read()
"""


def held(project: Project, temporary: Path) -> subprocess.Popen[bytes]:
    """Another process that has made its worktrees and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(project.repo), str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    return process


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)
    process.communicate(timeout=60)


def readable(fd: int, within_s: float = 60) -> bool:
    """Whether there is something to read within that time; of a process, whether it has ended."""
    return bool(select.select([fd], [], [], within_s)[0])


def state(repo: Path) -> dict[str, object]:
    """Everything of a repository that a user could miss, and all files, git's own settings and refs too."""
    transient = {"index.lock"}
    files = {
        str(path.relative_to(repo)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(repo.rglob("*"))
        if path.is_file() and path.name not in transient
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


def test_a_worktree_has_the_files_of_the_commit_and_the_user_keeps_theirs(
    busy: Project, own_temporary_folder: Path
) -> None:
    before = state(busy.repo)
    with room(repository_of(busy.repo)) as ours:
        one, other = ours.add("HEAD", "base"), ours.add("HEAD", "head")
        assert one != other
        assert len(str(one)) == len(str(other))
        assert (one / "mini_s.py").read_text() == "old = 1"
        assert (one / "removed.py").exists()
        assert not (one / "untracked.py").exists()
        (one / "mini_s.py").write_text("changed there")
        (one / "__pycache__").mkdir()
        meanwhile = state(busy.repo)
    assert state(busy.repo) == before
    kept = {name for name in meanwhile["files"] if not name.startswith(".git/worktrees/")}  # type: ignore[attr-defined]
    assert kept == set(before["files"])  # type: ignore[call-overload]
    assert meanwhile["status --porcelain"] == before["status --porcelain"]
    assert list(own_temporary_folder.iterdir()) == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_it_is_put_away_after_an_error_and_after_ctrl_c(
    busy: Project, own_temporary_folder: Path, failure: type[BaseException]
) -> None:
    def broken_off() -> None:
        with room(repository_of(busy.repo)) as ours:
            assert ours.add("HEAD", "base").exists()
            raise failure

    before = state(busy.repo)
    with pytest.raises(failure):
        broken_off()
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []


def test_a_process_ended_by_ctrl_c_leaves_nothing(busy: Project, own_temporary_folder: Path) -> None:
    before = state(busy.repo)
    end(held(busy, own_temporary_folder), signal.SIGINT)
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []


def test_what_a_killed_process_left_is_gone_with_the_next_start(
    busy: Project, own_temporary_folder: Path
) -> None:
    before = state(busy.repo)
    end(held(busy, own_temporary_folder), signal.SIGKILL)
    assert len(run_git(busy.repo, "worktree", "list").splitlines()) == 3
    with room(repository_of(busy.repo)):
        assert len(run_git(busy.repo, "worktree", "list").splitlines()) == 1
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []


def test_so_is_what_git_remembers_of_one_whose_folder_is_gone(
    busy: Project, own_temporary_folder: Path
) -> None:
    before = state(busy.repo)
    end(held(busy, own_temporary_folder), signal.SIGKILL)
    (folder,) = own_temporary_folder.iterdir()
    shutil.rmtree(folder)
    with room(repository_of(busy.repo)):
        pass
    assert state(busy.repo) == before


def test_worktrees_of_others_and_of_running_comparisons_are_left_alone(
    busy: Project, own_temporary_folder: Path, tmp_path: Path
) -> None:
    theirs, gone = tmp_path / "attnbench-live-theirs-base", tmp_path / "gone" / f"{_ours()}-mine-base"
    for tree in (theirs, gone):
        run_git(busy.repo, "worktree", "add", "--quiet", "--detach", str(tree))
    (theirs / "work.py").write_text("not committed")
    gone.parent.rename(tmp_path / "moved")
    other = held(busy, own_temporary_folder)
    before = run_git(busy.repo, "worktree", "list", "--porcelain")
    with room(repository_of(busy.repo)) as ours:
        ours.add("HEAD", "base")
    assert run_git(busy.repo, "worktree", "list", "--porcelain") == before
    assert (theirs / "work.py").read_text() == "not committed"
    assert before.count("worktree ") == 5
    end(other, signal.SIGINT)
    assert run_git(busy.repo, "worktree", "list", "--porcelain").count("worktree ") == 3


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user to whom permissions apply, which they don't to root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_what_another_user_has_in_the_same_temporary_folder_is_left_alone() -> None:
    with TemporaryDirectory(dir="/tmp") as place:
        temporary = Path(place)
        temporary.chmod(0o755)
        theirs = temporary / f"{_ours()}-theirs"
        theirs.mkdir()
        (theirs / "owner").touch()
        theirs.chmod(0)
        with without_rights():
            remove_leftovers(Repository(temporary), temporary)
        theirs.chmod(0o700)
        assert (theirs / "owner").exists()


def test_no_hook_of_the_user_runs_and_no_variable_of_a_hook_counts(
    busy: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook = busy.repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)
    before = state(busy.repo)
    monkeypatch.setenv("GIT_DIR", str(busy.repo / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(busy.repo / ".git" / "index"))
    with room(repository_of(busy.repo)) as ours:
        assert (ours.add("HEAD", "base") / "mini_s.py").exists()
    monkeypatch.undo()
    assert not (tmp_path / "ran").exists()
    assert state(busy.repo) == before


def test_from_a_worktree_of_the_users_own(busy: Project, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    run_git(busy.repo, "worktree", "add", "--quiet", "-b", "feature", str(mine))
    before = state(busy.repo)
    with room(repository_of(mine)) as ours:
        assert (ours.add("feature", "head") / "mini_s.py").exists()
    assert state(busy.repo) == before


def test_a_checkout_that_fails_is_one_sentence_and_leaves_nothing(
    busy: Project, own_temporary_folder: Path
) -> None:
    before = state(busy.repo)
    with (
        pytest.raises(BadInput, match="can't check out 000000000000 for the base side: "),
        room(repository_of(busy.repo)) as ours,
    ):
        ours.add("0" * 40, "base")
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []


def test_temporary_files_in_the_repository_are_refused(
    busy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(busy.repo / "build"))
    with pytest.raises(BadInput, match="TMPDIR"), room(repository_of(busy.repo)):
        pass


def test_a_checkout_is_ended_in_the_middle(busy: Project, own_temporary_folder: Path) -> None:
    """git stands still in a filter until we are interrupted; half a worktree is put away like a whole one."""
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
    assert len(run_git(busy.repo, "worktree", "list").splitlines()) == 2
    assert not readable(filters, within_s=0)
    end(process, signal.SIGINT)
    assert readable(filters), "the filter goes on"
    os.close(told)
    os.close(filters)
    assert state(busy.repo) == before
    assert list(own_temporary_folder.iterdir()) == []
