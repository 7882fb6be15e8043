"""The files of a new package; ``plugins/attnbench-example`` is one."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from attnbench import __version__
from attnbench.starter.package import names_of, package

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "plugins" / "attnbench-example"
MADE = {"__pycache__", ".pytest_cache", ".benchmarks", ".hypothesis", "results", "dist"}
"""Folders that working with a package leaves in it."""


def in_files(folder: Path) -> dict[str, str]:
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path): (folder / path).read_text() for path in inside if not MADE & {*path.parts}}


def test_the_example_is_what_is_written_for_its_name() -> None:
    """If it is not: remove it, and run ``attnbench new example --into plugins``."""
    assert in_files(EXAMPLE) == package(names_of("example"))


@pytest.mark.parametrize("word", ["my-kernel", "4bit", "class"])
def test_files_are_valid(word: str) -> None:
    names = names_of(word)
    files = package(names)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == names.distribution
    assert project["entry-points"]["attnbench"] == {names.backend: names.module}
    assert __version__.startswith(project["dependencies"][0].removeprefix("attnbench>="))
    for path, text in files.items():
        assert "$" not in path
        assert text == "" or text.endswith("\n")
        if path.endswith(".py"):
            ast.parse(text)
