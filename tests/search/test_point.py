"""Points as texts: what the search prints can be asked again."""

from __future__ import annotations

import pytest

from attnbench.trial.point import CHOICES, Point, Way, parse_point
from attnbench.types.errors import AttnbenchError

CASE = "attention/scaled_dot/B1-H2-Lq16-Lk16-D8/causal/float32/cpu/both"


def test_a_text_gives_the_same_point() -> None:
    point = parse_point(
        f"{CASE} values:large_logits grad:k q:slice v:same_in_heads upstream:expanded before:larger"
    )
    assert point.values == "large_logits"
    assert point.way == Way("k", "slice", "", "same_in_heads", "expanded", "larger")
    assert parse_point(str(point)) == point


@pytest.mark.parametrize(("name", "word"), [(name, word) for name in CHOICES for word in CHOICES[name]])
def test_every_word_of_a_way_has_a_meaning_in_words(name: str, word: str) -> None:
    from attnbench.trial.shrink import needed

    case = CASE.replace("float32", "bfloat16")
    plain = len(needed(parse_point(case)))
    assert len(needed(parse_point(f"{case} {name}:{word}"))) == plain + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{CASE} q:slices", "no q 'slices'"),
        (f"{CASE} z:slice", "no word 'z'"),
        (f"{CASE} autocast:on", "autocast needs one of bfloat16, float16"),
        (f"{CASE} values:large_logit", "did you mean 'large_logits'"),
        ("attention/scaled_dot/H2", "is missing"),
    ],
)
def test_a_wrong_text_is_told(text: str, words: str) -> None:
    with pytest.raises(AttnbenchError, match=words):
        parse_point(text)


def test_a_plain_point_is_the_id_of_its_case() -> None:
    assert str(Point(parse_point(CASE).case)) == CASE
