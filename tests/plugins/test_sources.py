from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnbench.plugins.sources import installed
from attnbench.types.extensions import Source

Install = Callable[..., Path]


def test_our_own_plugins_come_in_by_entry_points_and_first(install: Install) -> None:
    install("mini_z", "", distribution="aaa-before-us")
    sources = list(installed())
    ours = [source for source in sources if source.distribution == "attnbench"]
    assert sources[: len(ours)] == ours
    kinds = ("rules", "backends", "suites", "operations")
    assert {source.module for source in ours} == {f"attnbench.{kind}" for kind in kinds}


def test_others_follow_by_distribution(install: Install) -> None:
    install("mini_b", "", distribution="b-dist")
    install("mini_a", "", distribution="a-dist", version="3.1")
    others = [source for source in installed() if source.name.startswith("mini_")]
    assert others == [
        Source("mini_a", "mini_a", "a-dist", "3.1"),
        Source("mini_b", "mini_b", "b-dist", "1.0"),
    ]
    assert str(others[0]) == "a-dist 3.1 (mini_a)"


def test_finding_imports_nothing(install: Install) -> None:
    install("mini_bomb", "raise AssertionError('imported')")
    assert "mini_bomb" in {source.name for source in installed()}


def test_a_distribution_that_is_there_twice_counts_as_python_would_import_it(install: Install) -> None:
    install("mini_a", "", distribution="twice", version="1.0")
    install("mini_a", "", distribution="twice", version="2.0")
    found = [source for source in installed() if source.distribution == "twice"]
    assert [source.version for source in found] == ["2.0"]
