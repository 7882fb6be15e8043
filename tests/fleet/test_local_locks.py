"""Runs on one machine wait for each other at files that nobody else can make, change or lead elsewhere."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from types import SimpleNamespace

import pytest

from attnbench.executors.local import LOCAL
from attnbench.results.disk import lock, open_lock
from attnbench.types.errors import BadInput
from attnbench.types.fleet import Ended, Fleet, Task

TASK = Task(("attnbench", "--version"), follow="nothing")
"""A task whose file is followed is one that measures."""


@pytest.fixture(scope="module")
def local() -> Iterator[Fleet]:
    with LOCAL.connect("") as fleet:
        yield fleet


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of locks, in a temporary folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"attnbench-locks-{os.getuid()}"


def test_a_run_says_that_it_waits_for_another(
    local: Fleet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = local.run(local.places[0], TASK)
    assert isinstance(first, Ended)
    assert first.status == 0
    assert folder.stat().st_mode & 0o777 == 0o700
    (path,) = folder.iterdir()
    path.write_bytes(b"mine")
    ended: list[object] = []
    # Not capsys: what a thread writes while it is read is lost.
    pieces: Queue[str] = Queue()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=pieces.put, flush=lambda: None))
    with open_lock(path) as held:
        assert lock(held.fileno(), path)
        thread = Thread(target=lambda: ended.extend(local.run(local.places[0], TASK)), daemon=True)
        thread.start()
        said = pieces.get(timeout=60)
    assert said.startswith("attnbench: the processor is measured by another run with --on local")
    assert repr(str(path)) in said
    thread.join()
    assert len(ended) == 1
    assert path.read_bytes() == b"mine"


def test_links_are_not_followed(local: Fleet, folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    folder.mkdir(0o700)
    (folder / "cpu.lock").symlink_to(mine)
    with pytest.raises(BadInput, match=r"can't lock .*cpu.lock"):
        list(local.run(local.places[0], TASK))
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("kind", ["a link", "open to others"])
def test_a_folder_of_somebody_else_is_refused(local: Fleet, folder: Path, tmp_path: Path, kind: str) -> None:
    if kind == "a link":
        (tmp_path / "theirs").mkdir()
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(
        BadInput, match=r"must be a folder of yours in which nobody else can write.*remove it"
    ):
        list(local.run(local.places[0], TASK))
