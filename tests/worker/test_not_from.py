"""A process keeps off the user's tree, but not off environments within it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.ipc.process import NOT_FROM, forbidden, is_code_of, keep_off_other_code


def test_code_of_a_tree(tmp_path: Path) -> None:
    tree, link = tmp_path / "tree", tmp_path / "link"
    tree.mkdir()
    link.symlink_to(tree)
    assert is_code_of(tree, tree)
    assert is_code_of(tree / "src" / "a.py", link)
    assert is_code_of(link / "a.py", tree)
    assert not is_code_of(tmp_path / "treehouse", tree)
    assert not is_code_of(tree / ".venv" / "lib" / "python3.11" / "site-packages" / "torch", tree)
    inside = tmp_path / "site-packages" / "tree"
    assert is_code_of(inside / "a.py", inside)


def test_the_import_path_loses_the_tree_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    installed = str(tree / "site-packages")
    monkeypatch.setattr(sys, "path", [str(tree), str(tree / "src"), installed, str(tmp_path), "/usr/lib"])
    monkeypatch.delenv(NOT_FROM, raising=False)
    assert forbidden() is None
    keep_off_other_code()
    assert len(sys.path) == 5
    monkeypatch.setenv(NOT_FROM, str(tree))
    keep_off_other_code()
    assert sys.path == [installed, str(tmp_path), "/usr/lib"]


def test_the_working_folder_counts_where_it_is_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/usr/lib"])
    monkeypatch.setenv(NOT_FROM, str(tmp_path))
    keep_off_other_code()
    assert sys.path == ["/usr/lib"]


def test_a_server_keeps_off_before_it_imports_anything_of_others(tmp_path: Path) -> None:
    """It takes the folder off, then meets our torch, which ends it."""
    (tmp_path / "user").mkdir()
    (tmp_path / "torch.py").write_text("import sys; sys.exit('PATH ' + ' '.join(sys.path))")
    there = os.environ.get("PYTHONPATH", "")
    paths = os.pathsep.join([str(tmp_path / "user"), str(tmp_path), *filter(None, [there])])
    done = subprocess.run(
        [sys.executable, "-m", "attnbench.worker.server", "0", "1", str(os.getpid())],
        env=os.environ | {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", NOT_FROM: str(tmp_path / "user")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PATH " in done.stderr, done.stderr
    assert str(tmp_path) in done.stderr.split()
    assert str(tmp_path / "user") not in done.stderr.split()
