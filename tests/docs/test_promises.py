"""Every promise of promises.toml stands in its source, and a test keeps it."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = tomllib.loads((Path(__file__).parent / "promises.toml").read_text())
PROMISES: list[dict[str, Any]] = FILE["promises"]
WITHDRAWN: list[dict[str, str]] = FILE.get("withdrawn", [])


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@cache
def source(where: str) -> str:
    return in_one_line((ROOT / where).read_text())


def keepers(promise: dict[str, Any]) -> list[str]:
    named = promise["kept_by"]
    return [named] if isinstance(named, str) else named


@cache
def names_in(path: str) -> frozenset[str]:
    """The tests of a file as pytest names them, `name` or `Class::name`, without importing it."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return frozenset(name for name in found if name.split("::")[-1].startswith("test_"))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise["says"][:60])
def test_the_sentence_stands_where_it_stood(promise: dict[str, Any]) -> None:
    assert in_one_line(promise["says"]) in source(promise["where"]), (
        "this promise is gone or changed: see that its test keeps the new sentence, then change promises.toml"
    )


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise["says"][:60])
def test_a_test_keeps_it(promise: dict[str, Any]) -> None:
    assert keepers(promise)
    for keeper in keepers(promise):
        path, _, name = keeper.partition("::")
        assert (ROOT / path).is_file(), f"no file {path}"
        assert name in names_in(path), f"no test {name} in {path}"


def test_what_is_withdrawn_is_promised_no_more() -> None:
    for promise in WITHDRAWN:
        assert promise["why"]
        assert in_one_line(promise["says"]) not in source(promise["where"]), promise["says"]


def test_each_promise_stands_once() -> None:
    said = [(promise["where"], in_one_line(promise["says"])) for promise in PROMISES + WITHDRAWN]
    assert sorted(said) == sorted(set(said))
