"""In a session that doesn't use it the plugin is a module without imports; and pytest finds it by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import attnbench.pytest_plugin

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "pandas", "scipy", "msgspec", "rich", "click")
CONFTEST = """
import json, sys
def pytest_unconfigure(config):
    names = [name for name in sys.modules if name.partition(".")[0] in KINDS]
    (config.rootpath / "imported.json").write_text(json.dumps(sorted(names)))
""".replace("KINDS", repr((*HEAVY, "attnbench")))
USED = """
import pytest
@pytest.mark.attnbench("attention/dot/H1-L4-D4")
def test_it(attnbench_case): assert attnbench_case.rule == 'dot'
"""


def imported(folder: Path, tests: str) -> list[str]:
    """Return the heavy modules and attnbench's own that a session without other plugins has imported."""
    (folder / "test_any.py").write_text(tests)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    words = ("-q", "-p", "no:cacheprovider", "-p", "attnbench.pytest_plugin")
    command = [sys.executable, "-m", "pytest", *words]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[str] = json.loads((folder / "imported.json").read_text())
    return found


def test_an_unused_plugin_imports_nothing(tmp_path: Path) -> None:
    assert imported(tmp_path, "def test_it(): pass\n") == ["attnbench", "attnbench.pytest_plugin"]


def test_collecting_cases_imports_no_torch(tmp_path: Path) -> None:
    found = imported(tmp_path, USED)
    assert {"attnbench.pytest_plugin.pairs", "attnbench.plugins.registry", "numpy"} <= set(found)
    assert "torch" not in found


def test_pytest_finds_it_by_the_entry_point_of_the_distribution() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert declared["entry-points"]["pytest11"] == {"attnbench": "attnbench.pytest_plugin"}
    assert any(word.startswith("pytest-benchmark") for word in declared["optional-dependencies"]["test"])
    assert not any(word.startswith("pytest") for word in declared["dependencies"])
    points = distribution("attnbench").entry_points.select(group="pytest11")
    # An installation that is older than the entry point has none.
    assert {point.name: point.value for point in points} in ({}, declared["entry-points"]["pytest11"])
    # pytest rewrites what has asserts; this has none, and is imported before pytest asks.
    assert "PYTEST_DONT_REWRITE" in (attnbench.pytest_plugin.__doc__ or "")
