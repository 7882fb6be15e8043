"""Verdicts on gradients: each part of an answer has its own, and is named where it's wrong."""

from __future__ import annotations

import numpy as np
import pytest
from plain_here import PlainHere, open_here, plain_of

from attnbench.inputs.kinds import NORMAL

NAMES = ("out", "q", "k", "v")


@pytest.fixture(scope="module")
def both() -> PlainHere:
    made = plain_of(open_here("attention/scaled_dot/B1-H2-L8-D4/causal/float32/cpu/both"))
    made.score()
    return made


def test_each_part_has_numbers(both: PlainHere) -> None:
    both.score("mine")
    judged = both.opened.judge("mine")
    assert judged.problem == ""
    assert tuple(judged.parts) == NAMES
    assert judged.accuracy == judged.parts["out"]
    assert len({accuracy.rms_error for accuracy in judged.parts.values()}) == 4
    for accuracy in judged.parts.values():
        assert 0 < accuracy.rms_error < 1e-6
        assert accuracy.error_budget == pytest.approx(1), "the plain reference itself"


@pytest.mark.parametrize("part", NAMES)
def test_a_part_that_is_wrong_is_named(both: PlainHere, part: str) -> None:
    both.score("mine")
    answer = both.answer(0)
    answer[part][0, 1, 5, 2] += 0.01
    assert both.opened.score("mine", 0, answer) == ""
    judged = both.opened.judge("mine")
    words = "" if part == "out" else f"the gradient of {part}: "
    assert judged.problem.startswith(words + "RMS error")
    assert "(b=0, h=1, i=5, d=2)" in judged.problem
    assert judged.failed == (NORMAL,)
    wrong = {name for name, a in judged.parts.items() if a.max_error > a.max_limit}
    assert wrong == {part}


@pytest.mark.parametrize("part", NAMES)
def test_what_is_not_finite_is_said_at_once(both: PlainHere, part: str) -> None:
    answer = both.answer(0)
    answer[part][0, 1, 5, 2] = np.nan
    words = "" if part == "out" else f"the gradient of {part}: "
    assert both.opened.score("mine", 0, answer).startswith(words + "element (b=0, h=1, i=5, d=2) is not")


def test_gradients_that_are_missing_are_no_answer(both: PlainHere) -> None:
    answer = both.answer(0)
    del answer["k"]
    with pytest.raises(ValueError, match=r"an answer of \['out', 'q', 'v'\] where \['k', 'out', 'q', 'v'\]"):
        both.opened.score("mine", 0, answer)


def test_of_a_backward_pass_the_worst_gradient_counts() -> None:
    made = plain_of(open_here("attention/scaled_dot/B1-H2-L8-D4/none/float32/cpu/backward"))
    made.score()
    made.score("mine")
    answer = made.answer(0)
    answer["v"] *= 1.00001
    made.opened.score("mine", 0, answer)
    judged = made.opened.judge("mine")
    assert tuple(judged.parts) == ("q", "k", "v")
    assert judged.problem.startswith("the gradient of v: ")
    assert judged.accuracy == judged.parts["v"]
