"""What a verifier knows of its case: draws in their order, verdicts by family, canaries."""

from __future__ import annotations

import numpy as np
import pytest
from asked import SPECIAL_FAMILIES
from plain_here import PlainHere, open_here, plain_of

from attnbench.inputs.kinds import DELIVERIES, FAMILIES, NORMAL
from attnbench.ipc.names import PLAIN
from attnbench.verifier.case import CaseVerifier, passing_trivial_answer

CASE = "attention/scaled_dot/B1-H2-L16-D8/none/float32"
ALL = [family.name for family in FAMILIES]


@pytest.fixture(scope="module")
def plain() -> PlainHere:
    """Of a case with draws of every family, its check scored."""
    made = plain_of(open_here(CASE))
    made.score()
    return made


def test_what_is_changed_deep_inside_follows_what_it_was() -> None:
    opened = open_here(CASE)
    families = opened.families
    assert set(families) == set(ALL)
    places = [at for at, family in enumerate(families) if family == "deep_change"]
    assert len(places) >= 2
    seen = set()
    for at in places:
        assert families[at - 1] == NORMAL
        (q, k, v), (q_now, k_now, v_now) = (opened.draw(i).inputs.values() for i in (at - 1, at))
        assert q.tobytes() == q_now.tobytes()
        seen.add(q.tobytes())
        values, keys = np.count_nonzero(v != v_now), np.count_nonzero((k != k_now).any(axis=-1))
        # Of some draws only one of both: a backend may look at the other alone.
        assert values <= 2
        assert keys <= 2
        assert values + keys > 0
    assert len(seen) == len(places), "each of another draw"


@pytest.mark.parametrize("left_out", SPECIAL_FAMILIES)
def test_a_family_left_out_takes_no_other_along(left_out: str) -> None:
    whole, less = open_here(CASE), open_here(CASE, without=(left_out,))
    assert set(less.families) == set(ALL) - {left_out}
    kept = [at for at, family in enumerate(whole.families) if family != left_out]
    assert [whole.families[at] for at in kept] == list(less.families)
    for now, at in enumerate(kept):
        assert draws(less, now) == draws(whole, at)
    # The inputs of timed calls are others, wherever they begin.
    timed = len(whole.families)
    assert draws(whole, timed) not in [draws(whole, at) for at in range(timed)]


def draws(opened: CaseVerifier, index: int) -> list[bytes]:
    return [array.tobytes() for array in opened.draw(index).inputs.values()]


def test_a_backward_pass_has_ordinary_draws_alone() -> None:
    assert set(open_here(f"{CASE}/cpu/backward").families) == {NORMAL}
    assert set(open_here(f"{CASE}/cpu/both").families) == set(ALL) - {"graded"}


@pytest.mark.parametrize("family", ALL)
def test_one_wrong_element_in_one_draw_of_a_family_is_told_with_it(plain: PlainHere, family: str) -> None:
    plain.score("mine")
    assert plain.opened.judge("mine").problem == ""
    assert plain.opened.judge("mine").failed == ()
    at = plain.opened.families.index(family)
    answer = plain.answer(at)
    answer["out"][0, 1, 3, 5] += 3 * np.abs(answer["out"]).max()
    assert plain.opened.score("mine", at, answer) == ""
    judged = plain.opened.judge("mine")
    assert judged.failed == (family,)
    words = "" if family == NORMAL else f"on inputs of the family {family}: "
    assert judged.problem.startswith(words + "RMS error")
    assert "(b=0, h=1, i=3, d=5)" in judged.problem
    # The numbers are those of ordinary inputs, whichever family was failed.
    normal = plain.opened.families.count(NORMAL)
    assert judged.accuracy.draws == normal
    assert (judged.accuracy.max_error > judged.accuracy.max_limit) == (family == NORMAL)
    assert judged.parts == {}


def test_all_failed_families_are_told_the_first_in_words(plain: PlainHere) -> None:
    plain.score("mine")
    for family in ("quiet", "one_key"):
        at = plain.opened.families.index(family)
        plain.opened.score("mine", at, {"out": np.zeros((1, 2, 16, 8), np.float32)})
    judged = plain.opened.judge("mine")
    assert judged.failed == ("one_key", "quiet")
    assert judged.problem.startswith("on inputs of the family one_key: ")


@pytest.mark.parametrize(
    ("case", "canary"),
    [
        ("attention/scaled_dot/B2-H2-Lq6-Lk1-D4/none/float32", "first_value"),
        ("attention/scaled_dot/B2-H2-L6-D4/window:1/float32", "own_value"),
        ("multihead/scaled_dot/B2-H2-L1-D4-E6/none/bfloat16", "first_value"),
        ("attention/scaled_dot/B2-H2-L6-D4/none/float32", ""),
        ("attention/scaled_dot/B2-H2-Lq1-Lk6-D4/none/bfloat16", ""),
        ("attention/scaled_dot/B2-H2-L6-D4/window:1/float32/cpu/backward", ""),
    ],
)
def test_a_case_that_a_canary_passes_is_found(case: str, canary: str) -> None:
    made = plain_of(open_here(case))
    made.score()
    assert passing_trivial_answer(made.opened) == canary


def test_without_its_families_a_case_may_still_tell_something() -> None:
    made = plain_of(open_here(CASE, without=tuple(SPECIAL_FAMILIES)))
    with pytest.raises(ValueError, match=r"no plain reference of draws \[0\] to judge by"):
        passing_trivial_answer(made.opened)
    made.score()
    assert passing_trivial_answer(made.opened) == ""


@pytest.mark.parametrize("family", DELIVERIES)
def test_a_verdict_goes_without_a_delivery_that_was_not_given_and_without_nothing_else(
    plain: PlainHere, family: str
) -> None:
    draws = [at for at, each in enumerate(plain.opened.families) if each != family]
    for at in draws:
        plain.opened.score(f"not {family}", at, plain.answer(at))
    with pytest.raises(ValueError, match="no outputs of draws"):
        plain.opened.judge(f"not {family}")
    assert plain.opened.judge(f"not {family}", (family,)).problem == ""
    for at in [at for at in draws if plain.opened.families[at] != "loud"]:
        plain.opened.score(f"not {family}, not loud", at, plain.answer(at))
    with pytest.raises(ValueError, match="no outputs of draws"):
        plain.opened.judge(f"not {family}, not loud", (family, "loud"))


def test_of_several_orders_of_summation_the_worst_measures() -> None:
    made = plain_of(open_here(CASE))
    made.score()
    at = made.opened.families.index("deep_change")
    off = made.answer(at)
    off["out"][0, 1, 3, 5] += 3e-5
    made.opened.score("mine", at, off)
    for index in range(len(made.opened.families)):
        if index != at:
            made.opened.score("mine", index, made.answer(index))
    assert made.opened.judge("mine").failed == ("deep_change",)
    made.opened.score(PLAIN, at, off)
    assert made.opened.judge("mine").failed == ()
    made.opened.score(PLAIN, at, made.answer(at))
    assert made.opened.judge("mine").failed == (), "a better one later takes nothing back"
