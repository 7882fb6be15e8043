"""Rules that no linter knows: which imports are light, and that everything comes in by the same doors."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "attnbench").rglob("*.py"))
LAZY = {"torch", "pandas", "rich", "scipy"}
LIGHT = ("types", "plugins", "hookspecs.py", "cli", "api.py", "__init__.py", "__main__.py")

sources = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))


def module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is imported; what is for type checkers alone does not."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from module_level(statement.orelse)
            continue
        yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from module_level(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            yield from module_level(handler.body)


def imported_at_once(text: str) -> set[str]:
    """Top-level packages that a module imports when it is itself imported."""
    found: set[str] = set()
    for statement in module_level(ast.parse(text).body):
        if isinstance(statement, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "imports are absolute"
            found.add((statement.module or "").partition(".")[0])
    return found


@sources
def test_nothing_slow_is_imported_at_module_level(path: Path) -> None:
    slow = LAZY
    if path.relative_to(ROOT / "attnbench").parts[0] in LIGHT:
        slow = LAZY | {"numpy"}
    assert imported_at_once(path.read_text()) & slow == set()


def test_what_must_hold_before_a_change_lands_includes_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    (told,) = re.findall(r"^    (pip install .*&& pytest)$", readme, re.MULTILINE)
    install, _, test = told.partition(" && ")
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    done = [line.replace(" --quiet", "") for line in script]
    assert done.index(install) < done.index(test)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert {"ruff check .", "mypy", "lint-imports"} <= set(done)


def test_built_ins_come_in_by_the_entry_points_of_the_distribution_alone() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["attnbench"]
    points = distribution("attnbench").entry_points.select(group="attnbench")
    assert {point.name: point.value for point in points} == declared
    ours = [source for source in installed() if source.distribution == "attnbench"]
    assert {source.name: source.module for source in ours} == declared
    without = load_registry(source for source in installed() if source.distribution != "attnbench")
    assert not {"eager", "bmm", "sdpa_flash"} & set(without.backends)
    assert not {"dot", "scaled_dot", "additive"} & set(without.rules)
    assert "smoke" not in without.suites


def test_the_tests_of_every_package_under_plugins_are_run() -> None:
    """But those of the example, which are run with what ``attnbench new`` writes."""
    packages = {path.parent.name for path in (ROOT / "plugins").glob("*/tests")} - {"attnbench-example"}
    assert packages
    assert packages <= set((ROOT / ".ci" / "plugins").read_text().replace("(", " ").replace(")", " ").split())
