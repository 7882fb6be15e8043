"""What ``import attnbench`` gives: every name there, documented and light until it is used."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attnbench

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "numpy", "pandas", "pluggy", "rich", "click", "msgspec"}


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after a statement."""
    script = f"import json, sys\n{statement}\nprint(json.dumps([m.partition('.')[0] for m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", attnbench.__all__)
def test_every_exported_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(attnbench, name)
    if name == "__version__":
        assert re.fullmatch(r"\d+\.\d+\.\d+", found)
    else:
        assert inspect.getdoc(found), f"{name} has no docstring"


def test_what_the_checker_of_types_sees_is_what_there_is() -> None:
    """The names imported for type checkers, those that are lazy, and __all__ are three lists of the same."""
    lazy = {name: f"attnbench.{module}" for module, names in attnbench._HOMES.items() for name in names}
    (block,) = (node for node in ast.parse(inspect.getsource(attnbench)).body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == lazy
    assert {*homes, "__version__"} == set(attnbench.__all__)


@pytest.mark.parametrize("name", ["rnu", "Bakend", "torch", "_nothing"])
def test_an_unknown_name_is_an_attribute_error_like_any_other(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^module 'attnbench' has no attribute '{name}'$"):
        getattr(attnbench, name)
    with pytest.raises(ImportError, match=f"cannot import name '{name}'"):
        exec(f"from attnbench import {name}")


@pytest.mark.parametrize(
    ("statement", "unused"),
    [
        ("import attnbench; attnbench.__version__", HEAVY),
        ("from attnbench import Backend, Case, Rule, hookimpl", {"torch", "numpy", "pandas", "rich"}),
        ("import attnbench; attnbench.run, attnbench.load", {"torch", "numpy", "pandas", "rich", "pluggy"}),
        ("import attnbench; attnbench.BadInput", HEAVY),
    ],
)
def test_names_load_no_more_than_they_need(statement: str, unused: set[str]) -> None:
    assert modules_after(statement) & unused == set()


def test_this_test_notices_what_is_loaded() -> None:
    assert "numpy" in modules_after("import attnbench; import numpy")


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert attnbench.__version__ == project["version"]


@pytest.mark.parametrize("name", ["BadInput", "BadCase", "BadFile"])
def test_one_except_clause_catches_all_that_is_raised_on_purpose(name: str) -> None:
    error = getattr(attnbench, name)
    assert issubclass(error, attnbench.AttnbenchError)
    assert issubclass(error, attnbench.BadInput)
    assert error.exit_code == 2
