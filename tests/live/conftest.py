from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_project import Install, Project, installed_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``project("mini_x")`` is one whose entry points name these modules, in the folder ``root`` of it."""
    makers = []

    def make(*modules: str, root: str = "") -> Project:
        # The test's own patches: two sets of them would restore each other's import paths.
        makers.append(installed_project(tmp_path, modules, (root,), monkeypatch))
        return next(makers[-1])

    yield make
    for maker in makers:
        next(maker, None)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where worktrees are made: nothing may be left in it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
