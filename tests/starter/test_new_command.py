"""``attnbench new`` writes a whole package or nothing, and says how to go on."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench


def new(*words: str) -> Result:
    return CliRunner().invoke(attnbench, ["new", *words], prog_name="attnbench")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_into_another_folder_whose_name_needs_quotes(folder: Path) -> None:
    (folder / "my plugins").mkdir()
    result = new("one", "--into", "my plugins")
    assert shlex.split(result.stdout.splitlines()[0]) == ["cd", "my plugins/attnbench-one"]
    assert (folder / "my plugins" / "attnbench-one" / "pyproject.toml").exists()


@pytest.mark.parametrize("kind", ["empty folder", "file", "dangling link"])
def test_an_existing_name_is_not_changed(folder: Path, kind: str) -> None:
    there = folder / "attnbench-one"
    if kind == "file":
        there.write_text("mine")
    elif kind == "dangling link":
        there.symlink_to("nowhere")
    else:
        there.mkdir()
    before = files_in(folder), names_in(folder)
    result = new("one")
    assert result.exit_code == 2
    assert result.stderr == (
        "attnbench: 'attnbench-one' exists already and is not changed; choose another name or --into\n"
    )
    assert (files_in(folder), names_in(folder)) == before
    assert result.stdout == ""


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    """A limit on the size of files stands in for it: half of the first file is written."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "attnbench", "new", "one"], preexec_fn=limited,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == "attnbench: File too large\n"
    assert names_in(folder) == []


def test_a_folder_that_appears_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        target.mkdir()
        (target / "theirs").write_text("theirs")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert new("one").exit_code == 3
    assert files_in(folder) == {"attnbench-one/theirs": "theirs"}
