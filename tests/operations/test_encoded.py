"""Encoded keys and values are judged by what they mean: right kernels pass, planted mistakes do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import encoded
import pytest
from batch_judge import Judge

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.work import bytes_of_problems
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.runner.case import refusal
from attnbench.types.errors import BadCase
from attnbench.verifier.case import passing_trivial_answer

PLUGIN = str(Path(__file__).with_name("encoded.py"))
CASE = "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk40-D32/none/{}/kv={}"
WORDS = tuple(encoded.MISTAKES)
PLANTED = [(word, name) for word, mistakes in encoded.MISTAKES.items() for name in mistakes]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str, str], Judge]:
    """Open each case once."""
    return cache(lambda dtype, word: Judge(registry, CASE.format(dtype, word)))


def named(word: str, name: str) -> str:
    return f"{word} {name}".replace(" ", "_").replace(":", "_")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_right_kernels_pass(judges: Callable[[str, str], Judge], dtype: str, word: str) -> None:
    judge = judges(dtype, word)
    assert judge.problem("dequantise_sdpa") == ""
    if dtype != "float64":
        assert judge.problem(named(word, "right")) == ""
    assert passing_trivial_answer(judge.opened) == ""
    assert {"normal", "deep_change", "one_key", "loud"} <= set(judge.opened.families)


@pytest.mark.parametrize(("word", "name"), PLANTED)
@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_planted_mistakes_are_refused(
    judges: Callable[[str, str], Judge], word: str, name: str, dtype: str
) -> None:
    assert judges(dtype, word).problem(named(word, name)) != ""


@pytest.mark.parametrize("word", WORDS)
def test_remembered_scales_are_refused(judges: Callable[[str, str], Judge], word: str) -> None:
    assert judges("float32", word).problem(named(word, "scales of the first call")) != ""


def test_a_backend_is_asked_only_for_encodings_that_it_declares(registry: Registry) -> None:
    case, rule = parse_case(CASE.format("float32", "int8")), registry.rule("scaled_dot")
    asked = refusal(registry.backend("sdpa_math"), case, rule, devices=())
    assert asked == ("unsupported", "takes keys and values as dtype, not int8:head")
    assert refusal(registry.backend("dequantise_sdpa"), case, rule, devices=()) is None


def test_ids_say_the_grain_and_leave_out_the_dtype() -> None:
    assert case_id(parse_case(CASE.format("float32", "int8"))).endswith("/forward/kv=int8:head")
    assert "kv=" not in case_id(parse_case(CASE.format("float32", "dtype")))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (CASE.format("float32", "int8:page"), "is not a grain of int8"),
        (CASE.format("float32/both", "int8"), "codes have no gradients"),
        (CASE.format("float32/BLHD", "int8"), "no layout"),
        ("multihead/scaled_dot/B1-H2-L8-D4-E8/kv=int8", "no keys and values to encode"),
    ],
)
def test_what_codes_cannot_have_is_refused_in_words(case: str, words: str) -> None:
    with pytest.raises(BadCase, match=words):
        parse_case(case)


def test_bytes_count_codes_and_scales(registry: Registry) -> None:
    rule, case = registry.rule("scaled_dot"), parse_case(CASE.format("bfloat16", "int8:head"))
    queries, codes, scales = 2 * 4 * 3 * 32 * 2, 2 * 2 * 40 * 32, 2 * 2 * 4
    assert bytes_of_problems(case, rule) == 2 * queries + 2 * (codes + scales)
    # Of one query that is causal at the upper left one key is read.
    seen = parse_case("attention/scaled_dot/B1-H4-Hkv2-Lq1-Lk40-D32/causal/bfloat16/kv=int8:head")
    assert bytes_of_problems(seen, rule) == 2 * (4 * 32 * 2) + 2 * (2 * 32 + 2 * 4)
