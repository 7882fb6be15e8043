"""Rules that no linter knows: which imports are light, and that everything comes in by the same doors."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import pytest

from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "attnbench").rglob("*.py"))
LAZY = {"torch", "pandas", "rich", "scipy"}
LIGHT = ("types", "plugins", "hookspecs.py", "cli", "api.py", "__init__.py", "__main__.py")


def imported_at_once(node: ast.AST) -> Iterator[str]:
    """Top-level packages that are imported with a module; those for type checkers alone are not."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom):
            yield (inner.module or "").partition(".")[0]
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        elif not (isinstance(inner, ast.If) and ast.unparse(inner.test) == "TYPE_CHECKING"):
            yield from imported_at_once(inner)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_slow_is_imported_at_module_level(path: Path) -> None:
    light = path.relative_to(ROOT / "attnbench").parts[0] in LIGHT
    slow = LAZY | {"numpy"} if light else LAZY
    assert slow.isdisjoint(imported_at_once(ast.parse(path.read_text())))


def test_what_must_hold_before_a_change_lands_includes_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    (told,) = re.findall(r"^    (pip install .*&& pytest)$", readme, re.MULTILINE)
    install, _, test = told.partition(" && ")
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    done = [line.replace(" --quiet", "") for line in script]
    assert done.index(install) < done.index(test)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


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


def test_an_import_contract_covers_every_room() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    covered = {
        name.strip()
        for contract in contracts
        for names in (*contract.get("layers", ()), *contract.get("source_modules", ()))
        for name in names.split("|")
    }
    parts = {path.relative_to(ROOT / "attnbench").parts[0].removesuffix(".py") for path in SOURCES}
    assert {f"attnbench.{part}" for part in parts if not part.startswith("__")} <= covered


def test_names_layers_devices_and_masks_keep_to_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests" / "benchmarks")
    found = import_module("weight").tangles(ROOT / "attnbench")
    masks = found.pop("files that read fields of a mask")
    assert len(masks) <= 3, masks
    assert not any(found.values()), found
