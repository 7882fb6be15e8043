"""The names of a new plugin, and the words that make them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.plugins.kinds import NAME
from attnbench.starter.package import Names, names_of
from attnbench.types.errors import BadInput


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("example", Names("attnbench-example", "attnbench_example", "example")),
        ("My__.Kernel", Names("attnbench-my-kernel", "attnbench_my_kernel", "my_kernel")),
        ("attnbench_example", Names("attnbench-example", "attnbench_example", "example")),
        ("attnbench-attnbench-x", Names("attnbench-attnbench-x", "attnbench_attnbench_x", "attnbench_x")),
        ("4bit", Names("attnbench-4bit", "attnbench_4bit", "4bit")),
        ("k" * 60, Names(f"attnbench-{'k' * 60}", f"attnbench_{'k' * 60}", "k" * 60)),
    ],
)
def test_a_word_is_three_names(word: str, names: Names) -> None:
    assert names_of(word) == names


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "",
            "name '': use letters a to z, digits, '-', '_' and '.', and begin and end with a letter or",
        ),
        ("attnbench-", "name 'attnbench-': use letters a to z"),
        ("\u212aernel", "name '\u212aernel': use letters a to z"),  # the Kelvin sign, whose lower case is k
        ("\u017fum", "name '\u017fum': use letters a to z"),  # the long s
        ("kernel\n", "name 'kernel\\n': use letters a to z"),
        ("k" * 61, f"name '{'k' * 61}': 61 characters; 60 are the most"),
    ],
)
def test_an_impossible_name_is_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(BadInput) as wrong:
        names_of(word)
    assert str(wrong.value).startswith(sentence)


@given(st.text(st.sampled_from("aZ09-_.é /\n"), max_size=12))
def test_every_accepted_word_makes_valid_names(word: str) -> None:
    try:
        names = names_of(word)
    except BadInput:
        return
    assert re.fullmatch(r"attnbench-[a-z0-9]+(-[a-z0-9]+)*", names.distribution)
    assert names.module.isidentifier()
    assert NAME.fullmatch(names.backend)
    assert names_of(names.distribution) == names
    assert names_of(names.backend) == names or names.backend.startswith("attnbench_")
