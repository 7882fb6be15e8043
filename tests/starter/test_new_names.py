"""What a new plugin may be called, and what is made of the word."""

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
        ("my-kernel", Names("attnbench-my-kernel", "attnbench_my_kernel", "my_kernel")),
        ("My__.Kernel", Names("attnbench-my-kernel", "attnbench_my_kernel", "my_kernel")),
        ("attnbench-example", Names("attnbench-example", "attnbench_example", "example")),
        ("attnbench_example", Names("attnbench-example", "attnbench_example", "example")),
        ("attnbench-attnbench-x", Names("attnbench-attnbench-x", "attnbench_attnbench_x", "attnbench_x")),
        ("4bit", Names("attnbench-4bit", "attnbench_4bit", "4bit")),
        ("k" * 60, Names(f"attnbench-{'k' * 60}", f"attnbench_{'k' * 60}", "k" * 60)),
        ("class", Names("attnbench-class", "attnbench_class", "class")),
    ],
)
def test_a_word_is_three_names(word: str, names: Names) -> None:
    assert names_of(word) == names


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "",
            "name '': letters a to z, digits, '-', '_' and '.', beginning and ending with a letter or",
        ),
        ("my kernel", "name 'my kernel': letters a to z"),
        ("_kernel", "name '_kernel': letters a to z"),
        ("kernel-", "name 'kernel-': letters a to z"),
        ("attnbench-", "name 'attnbench-': letters a to z"),
        ("kérnel", "name 'kérnel': letters a to z"),
        ("\u212aernel", "name '\u212aernel': letters a to z"),  # the Kelvin sign, whose lower case is k
        ("\u017fum", "name '\u017fum': letters a to z"),  # the long s
        ("kernel\n", "name 'kernel\\n': letters a to z"),
        ("attnbench", "name 'attnbench': this is attnbench itself; choose another name, as in my-kernel"),
        ("k" * 61, f"name '{'k' * 61}': 61 characters; 60 are the most"),
        (
            "plugins/mine",
            "name 'plugins/mine': a name is needed, not a path; choose the folder with --into, as in "
            "attnbench new mine --into plugins",
        ),
    ],
)
def test_what_can_not_be_is_told_in_a_sentence(word: str, sentence: str) -> None:
    with pytest.raises(BadInput) as wrong:
        names_of(word)
    assert str(wrong.value).startswith(sentence)


@given(st.text(st.sampled_from("aZ09-_.é /\n"), max_size=12))
def test_every_word_that_is_taken_makes_names_that_can_be(word: str) -> None:
    try:
        names = names_of(word)
    except BadInput:
        return
    assert re.fullmatch(r"attnbench-[a-z0-9]+(-[a-z0-9]+)*", names.distribution)
    assert names.module.isidentifier()
    assert NAME.fullmatch(names.backend)
    assert names_of(names.distribution) == names
    assert names_of(names.backend) == names or names.backend.startswith("attnbench_")
