from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_project import Install, Project, run_git


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``project("mini_x")`` is one whose entry points name these modules, in the folder ``root`` of it."""
    before = set(sys.modules)

    def make(*modules: str, root: str = "") -> Project:
        repo, site = tmp_path / "kernels", tmp_path / "site"
        info = site / "mini_live-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mini-live\nVersion: 1.0\n")
        lines = "".join(f"{module.replace('.', '_')} = {module}\n" for module in modules)
        (info / "entry_points.txt").write_text(f"[attnbench]\n{lines}")
        repo.mkdir()
        run_git(repo, "init", "--quiet")
        paths = [str(site), str(repo / root)]
        for path in reversed(paths):
            monkeypatch.syspath_prepend(path)
        there = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*paths, *([there] if there else [])]))
        return Project(repo.resolve(), site)

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("mini_"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where worktrees are made: nothing may be left in it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
