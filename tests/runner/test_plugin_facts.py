"""What plugins state of the machine is in the manifest; what fails is told and left out."""

from __future__ import annotations

import math
import sys
from typing import Any

import msgspec
import pytest

from attnbench.plugins.registry import Entry
from attnbench.runner.run import plugin_facts
from attnbench.types.extensions import EnvironmentFact, Source

SOURCE = Source("mini", "mini_facts", "attnbench-mini", "1.0")
OTHER = Source("other", "other_facts", "other", "2.0")
NEEDED = "where a text, a finite number, true, false or None is needed"


def entry(read: Any, name: str = "turbo", source: Source = SOURCE) -> Entry[EnvironmentFact]:
    return Entry(EnvironmentFact(name, "a test", read), source)


def test_facts_stand_under_the_distribution_that_reads_them() -> None:
    values = {"turbo": True, "cores": 4, "share": 0.5, "name": " a\nname ", "unknown": None}
    entries = [entry(lambda value=value: value, name) for name, value in values.items()]
    stated = plugin_facts([*entries, entry(lambda: "x", "theirs", OTHER)])
    assert stated == {
        "attnbench-mini": {"turbo": True, "cores": 4, "share": 0.5, "name": "a name", "unknown": None},
        "other": {"theirs": "x"},
    }
    assert msgspec.json.decode(msgspec.json.encode(stated)) == stated


class Odd(float):
    pass


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda: sys.exit(2), "raised SystemExit: 2"),
        (lambda needed: 1, "raised TypeError: <lambda>() missing 1 required positional argument: 'needed'"),
        (lambda: math.nan, f"gave nan, {NEEDED}"),
        (lambda: {"a": 1}, f"gave {{'a': 1}}, {NEEDED}"),
        (lambda: 2**63, f"gave 9223372036854775808, {NEEDED}"),
        (lambda: Odd(1.5), f"gave 1.5, {NEEDED}"),
    ],
)
def test_one_that_fails_is_told_and_left_out(
    read: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin_facts([entry(read), entry(lambda: 1, "other")]) == {"attnbench-mini": {"other": 1}}
    said = f"the fact 'turbo' {words}; the run goes without it"
    assert capsys.readouterr().err == f"attnbench: plugin attnbench-mini 1.0 (mini_facts): {said}\n"
