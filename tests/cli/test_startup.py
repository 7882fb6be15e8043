"""Help and completion import nothing heavy, whatever plugins do; and this test would notice if they did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "numpy", "pandas", "rich", "msgspec", "pluggy", "matplotlib", "scipy"}


@pytest.fixture
def with_torch_plugin(tmp_path: Path) -> dict[str, str]:
    """An environment with a plugin installed whose modules, that of its command too, import torch at once."""
    info = tmp_path / "attnbench_greedy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: attnbench-greedy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[attnbench]\ngreedy = attnbench_greedy_plugin\n"
        "[attnbench.commands]\ngreedy = attnbench_greedy_plugin:main\n"
    )
    (tmp_path / "attnbench_greedy_plugin.py").write_text("import torch\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def imported(words: list[str], environment: dict[str, str]) -> set[str]:
    """Top-level modules that a command line imports, as the interpreter itself tells."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "attnbench", *words],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 2), done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in told}
    assert {"click", "attnbench"} <= modules
    return modules


@pytest.mark.parametrize(
    "words",
    [
        [], ["--help"], ["--version"], ["run", "--help"], ["check", "--help"], ["report", "--help"],
        ["history", "--help"], ["merge", "--help"], ["compare", "--help"],
        ["list", "--help"], ["list", "cases", "--help"], ["plugins", "--help"], ["new", "--help"], ["rnu"],
        ["run", "--dtype", "x"],
    ],
)  # fmt: skip
def test_help_and_usage_errors_import_nothing_heavy(
    words: list[str], with_torch_plugin: dict[str, str]
) -> None:
    assert imported(words, with_torch_plugin) & HEAVY == set()


@pytest.mark.parametrize(
    "line",
    ["attnbench ", "attnbench run --", "attnbench run --format j", "attnbench run --dtype b"],
)
def test_completion_imports_nothing_heavy(line: str, with_torch_plugin: dict[str, str]) -> None:
    words = line.split()
    asked = {
        "_ATTNBENCH_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) if line.endswith(" ") else len(words) - 1),
    }
    assert imported([], with_torch_plugin | asked) & HEAVY == set()


def test_completion_completes(with_torch_plugin: dict[str, str]) -> None:
    asked = {
        "_ATTNBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "attnbench run --dtype b", "COMP_CWORD": "3",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "attnbench"],
        env=with_torch_plugin | asked, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "plain,bfloat16\n"


def test_finding_commands_of_plugins_does_not_import_what_is_slow(with_torch_plugin: dict[str, str]) -> None:
    """importlib.metadata takes longer to import than the rest of --help does."""
    assert "email" not in imported(["--help"], with_torch_plugin)
    assert "email" in imported(["list", "suites"], dict(os.environ))


def test_this_test_notices_torch(with_torch_plugin: dict[str, str]) -> None:
    assert imported(["plugins"], with_torch_plugin) >= {"torch", "pluggy", "rich"}


@pytest.mark.parametrize("words", [["list", "rules"], ["list", "cases", "edges"], ["plugins"]])
def test_lists_import_neither_torch_nor_pandas(words: list[str]) -> None:
    assert imported(words, dict(os.environ)) & {"torch", "pandas", "matplotlib", "scipy"} == set()
