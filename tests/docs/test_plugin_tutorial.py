"""The commands of docs/plugins.md in a new environment: from a file of fifteen lines to a published package.

The environment has attnbench as a wheel installs it, and sees the libraries of this one; nothing is fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import attnbench

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugins.md").read_text()
OFFLINE = 'case $1 in install|wheel) set -- "$@" --no-index --no-build-isolation;; esac\n'


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def written(folder: Path) -> None:
    """The file of the first step."""
    (code,) = (block for block in blocks("python") if block.startswith("# my_kernel.py\n"))
    (folder / "my_kernel.py").write_text(code)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell in which a new environment is active."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    binaries = folder / "bin"
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(paths["purelib"]) / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    for tool, before in (("pip", OFFLINE), ("pytest", "")):
        (binaries / tool).write_text(f'#!/bin/sh\n{before}exec {binaries}/python -m {tool} "$@"\n')
        (binaries / tool).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    clean = kept | {"PATH": f"{binaries}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = shell(f"pip install --quiet --no-deps '{ROOT}'", folder, clean)
    assert done.returncode == 0, done.stderr
    told = shell("python -c 'import attnbench; print(attnbench.__file__)'", folder, clean)
    assert Path(told.stdout.strip()).is_relative_to(folder)
    return clean


def shell(lines: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-e", "-c", lines]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Of the one run whose file lies in a folder, the rows by backend."""
    (file,) = folder.glob("*.jsonl")
    return {row["backend"]: row for row in attnbench.load(file).frame.to_dict("records")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_an_empty_folder_to_a_row_of_ones_own(clean: dict[str, str], tmp_path: Path) -> None:
    written(tmp_path)
    done = shell("".join(blocks("sh")), tmp_path, clean)
    assert done.returncode == 0, done.stdout + done.stderr
    package = tmp_path / "attnbench-my-kernel"
    row = rows(package / "results")["my_kernel"]
    assert row["status"] == "ok"
    assert row["verified_calls"] > 0
    assert row["ratio"] > 0
    assert re.search(r"\d+ passed", done.stdout)
    (wheel,) = (package / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert {"attnbench_my_kernel/__init__.py", "attnbench_my_kernel/py.typed"} <= {*archive.namelist()}
        (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert archive.read(points).decode().split("\n")[:2] == [
            "[attnbench]",
            "my_kernel = attnbench_my_kernel",
        ]


@pytest.mark.slow
def test_what_the_judge_says_of_the_file_that_claims_too_much(clean: dict[str, str], tmp_path: Path) -> None:
    written(tmp_path)
    file = tmp_path / "my_kernel.py"
    honest = file.read_text()
    file.write_text(re.sub(r"\n +supports=.*,", "", honest))
    assert file.read_text() != honest
    done = shell(blocks("sh")[0].splitlines()[0], tmp_path, clean)
    assert done.returncode == 1, done.stdout + done.stderr
    for line in blocks("text")[0].splitlines():
        assert line in done.stdout
