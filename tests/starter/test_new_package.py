"""The files of a new package; ``plugins/attnbench-example`` is one."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from attnbench import __version__
from attnbench.cli import attnbench
from attnbench.starter.package import names_of, next_lines, package

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


def test_no_template_is_left_in_a_name() -> None:
    for path, text in package(names_of("example")).items():
        wanted = {"${{ matrix.python }}", "$GITHUB_BASE_REF"} if path.endswith("ci.yml") else set()
        assert {*re.findall(r"\$(?:{{.*?}}|\w+)", text)} == wanted, path


def lines_to_run() -> list[str]:
    files = package(names_of("example"))
    workflow = re.findall(r"^ +- run: (.+)$", files[".github/workflows/ci.yml"], re.MULTILINE)
    readme = re.findall(r"^    (.+)$", files["README.md"], re.MULTILINE)
    return [*next_lines(names_of("example"), "attnbench-example"), *workflow, *readme]


@pytest.mark.parametrize("line", [line for line in lines_to_run() if line.startswith("attnbench ")])
def test_commands_in_it_name_options_that_exist(line: str) -> None:
    name, *words = shlex.split(line)[1:]
    context = click.Context(attnbench, info_name="attnbench")
    command = attnbench.get_command(context, name)
    assert command is not None
    assert command.make_context(name, words, parent=context).params
