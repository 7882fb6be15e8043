"""Errors end a command as their docstring says, and the words of names are of use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.types import errors
from attnbench.types.words import count_of, nearest, unknown_name

TREE = {
    "AttnbenchError": 3,
    "BadInput": 2,
    "BadCase": 2,
    "BadFile": 2,
    "MeasuringFailed": 3,
    "PluginFailed": 3,
    "Interrupted": 130,
}


def test_every_error_ends_a_command_with_its_status() -> None:
    found = {
        name: cls.exit_code
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, errors.AttnbenchError)
    }
    assert found == TREE
    tree = (errors.__doc__ or "").splitlines()
    for name in TREE:
        assert any(f"{name} " in line for line in tree), name


def test_an_interruption_says_how_to_go_on() -> None:
    stopped = errors.Interrupted(Path("results/run 1.jsonl"))
    assert str(stopped) == "interrupted; continue with --resume results/run 1.jsonl"
    assert stopped.path == Path("results/run 1.jsonl")
    live = errors.Interrupted(stopped.path, live=True)
    assert str(live) == "interrupted; what was measured is in results/run 1.jsonl; compare again"


@pytest.mark.parametrize("name", ["", " ", "a" * 10_000, "\n", "None"])
def test_any_word_that_means_nothing_lists_what_there_is(name: str) -> None:
    known = ["eager", "chunked"]
    assert nearest(name, known) is None
    assert unknown_name("backend", name, known) == f"no backend {name!r}; there are eager, chunked."


@settings(max_examples=25)
@given(st.text(min_size=2, max_size=12), st.integers(0, 11))
def test_a_name_with_one_letter_too_many_is_found(name: str, at: int) -> None:
    assert nearest(name[:at] + "~" + name[at:], [name, "§" * 9]) == name


def test_of_equally_near_names_the_first_is_meant() -> None:
    assert nearest("sdpa_flash2", ["sdpa_flash1", "sdpa_flash3"]) == "sdpa_flash1"
    assert nearest("sdpa_flash2", ["sdpa_flash3", "sdpa_flash1"]) == "sdpa_flash3"


def test_things_are_counted_in_one_way() -> None:
    assert [count_of(number, "case") for number in (0, 1, 2)] == ["0 cases", "1 case", "2 cases"]
    assert count_of(12_000, "case") == "12,000 cases"
