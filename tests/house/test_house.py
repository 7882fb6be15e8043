"""Rules of the house that no linter knows: what is imported where, what is documented, how long files are."""

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
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_LINES = 300
LAZY = {"torch", "pandas", "rich", "scipy"}
LIGHT = ("types", "plugins", "hookspecs.py", "cli", "api.py", "__init__.py", "__main__.py")

sources = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


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


def undocumented(text: str) -> list[str]:
    """Public modules, classes and functions without a docstring; a hook's is its specification's."""
    tree = ast.parse(text)
    missing = [] if ast.get_docstring(tree) else ["the module"]
    pending: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    while pending:
        prefix, body = pending.pop()
        for node in body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                missing.append(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                pending.append((f"{prefix}{node.name}.", node.body))
    return missing


def test_the_tools_of_this_file_find_what_they_look_for() -> None:
    text = (
        "from typing import TYPE_CHECKING\n"
        "try:\n    import torch.nn\nexcept ImportError:\n    import rich\n"
        "if TYPE_CHECKING:\n    import pandas\n"
        "class A:\n    import numpy\n    def f(self):\n        import scipy\n"
    )
    assert imported_at_once(text) == {"typing", "torch", "rich", "numpy"}
    assert undocumented(text) == ["the module", "A", "A.f"]
    assert undocumented('"""Said."""\ndef _private(): pass\ndef f():\n    """Said."""\n') == []


@sources
def test_nothing_slow_is_imported_at_module_level(path: Path) -> None:
    slow = LAZY
    if path.relative_to(ROOT / "attnbench").parts[0] in LIGHT:
        slow = LAZY | {"numpy"}
    assert imported_at_once(path.read_text()) & slow == set()


@sources
def test_what_is_public_is_documented(path: Path) -> None:
    assert undocumented(path.read_text()) == []


@sources
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert lines_of([path]) <= LONGEST_LINES


@sources
def test_nothing_is_left_for_later(path: Path) -> None:
    assert re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b", path.read_text()) == []


def test_there_is_as_much_test_as_there_is_source() -> None:
    """The zoo counts for neither: it is what the judge is tested with, and comes along for users to do so."""
    assert lines_of(TESTS) >= lines_of([path for path in SOURCES if "zoo" not in path.parts])


def test_no_two_files_of_tests_have_one_name() -> None:
    """Without packages pytest imports them by their name alone, and can't import a second."""
    names = [path.name for path in TESTS if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def test_every_room_has_tests() -> None:
    inside = [path.relative_to(ROOT / "attnbench").parts for path in SOURCES]
    rooms = {parts[0] for parts in inside if len(parts) > 1}
    tested = {
        word for path in TESTS for word in re.findall(r"\b(?:from|import) attnbench\.(\w+)", path.read_text())
    }
    # A room whose code comes in as a plugin is tested through the registry.
    assert rooms - tested <= {"backends", "suites", "rules", "verdicts"}


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


@pytest.mark.parametrize("kind", ["rules", "backends", "suites"])
def test_every_file_of_a_room_of_plugins_brings_something(kind: str) -> None:
    """What is registered is all there is: a kernel in a file that nobody yields would be dead code."""
    (source,) = (s for s in installed() if s.module == f"attnbench.{kind}")
    registry = load_registry([source])
    assert registry.faults == ()
    brought = {
        "rules": registry.rules,
        "backends": registry.backends,
        "suites": registry.suites,
        "verdicts": registry.verdict_rules,
    }
    assert brought[kind]
    assert all(not entries for other, entries in brought.items() if other != kind)
    assert {entry.source.distribution for entry in brought[kind].values()} == {"attnbench"}
    room = ROOT / "attnbench" / kind
    text = {path.stem: path.read_text() for path in room.glob("*.py")}
    for stem in text:
        if stem != "__init__":
            named = re.compile(rf"attnbench\.{kind}(?:\.| import .*?\b){stem}\b", re.DOTALL)
            assert any(named.search(other) for name, other in text.items() if name != stem), stem


def test_the_tests_of_every_package_under_plugins_are_run() -> None:
    """But those of the example, which are run with what ``attnbench new`` writes."""
    packages = {path.parent.name for path in (ROOT / "plugins").glob("*/tests")} - {"attnbench-example"}
    assert packages
    assert packages <= set((ROOT / ".ci" / "plugins").read_text().replace("(", " ").replace(")", " ").split())
