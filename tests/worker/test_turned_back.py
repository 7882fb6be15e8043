"""Answers to inputs of which some had other signs, taken back to those they had before."""

from __future__ import annotations

import numpy as np
import pytest

from attnbench.cases.identity import parse_case
from attnbench.inputs.draw import draw_activations, draw_parameters, widened
from attnbench.inputs.rounding import store, widen
from attnbench.oracle.solve import solve
from attnbench.plugins.registry import load_registry
from attnbench.worker.flipped import ALL, Flipped, draw_flipped, solves_a_query
from attnbench.worker.names import OUT, PLAIN
from attnbench.worker.opened_case import OpenedCase
from attnbench.worker.turned_back import turned_back

REGISTRY = load_registry()
CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk7-D4-Dv3/none/float32",
    "attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk7-D4-Dv3/causal:lower_right/bfloat16",
    "attention/alibi/B1-H2-Lq6-Lk6-D4/window:3/float64",
    "attention/additive/B1-H2-Lq3-Lk6-D4/padding/float32",
)
FEW = Flipped(column=(0, 1, 2), query=(0, 1, 2))


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("flipped", [ALL, FEW, Flipped(column=(0, 0, 1))])
def test_the_exact_answer_becomes_the_exact_answer(text: str, flipped: Flipped) -> None:
    case = parse_case(text)
    rule = REGISTRY.rule(case.rule)
    parameters = widened(draw_parameters(case, rule), case)
    inputs = tuple(widen(x, case.dtype) for x in draw_activations(case, rule, 1, 0))
    q, k, v = (x.copy() for x in inputs)
    if not flipped.column:
        v *= -1
    else:
        b, h, d = flipped.column
        v[b, h, :, d] *= -1
        if flipped.query:
            q[flipped.query] *= -1
    answer = store(np.asarray(solve(case, rule, parameters, (q, k, v)), np.float64), case.dtype)
    back = turned_back(case, rule, parameters, inputs, {OUT: answer}, flipped)[OUT]
    found = back if back.dtype.itemsize >= 8 else widen(back, case.dtype)
    right = solve(case, rule, parameters, inputs)
    eps = {"float64": 1e-15, "float32": 1e-6, "bfloat16": 1e-2}[case.dtype]
    np.testing.assert_allclose(
        np.asarray(found, np.float64), np.asarray(right, np.float64), rtol=eps, atol=eps
    )


def test_who_goes_on_with_the_old_answer_is_wrong_just_where_something_changed() -> None:
    """One column of two heads, and one row."""
    opened = OpenedCase(CASES[0], REGISTRY.rule("scaled_dot"), 1, 1e9)
    case = opened.case
    inputs = tuple(widen(x, case.dtype) for x in opened.draw(0).inputs)
    stale = store(opened.draw(0).expected[OUT], case.dtype)
    back = turned_back(case, opened.rule, opened.wide, inputs, {OUT: stale}, FEW)[OUT]
    wrong = np.abs(back - widen(stale, case.dtype)) > 1e-6
    assert wrong[0, 2:4, :, 2].all()
    assert wrong[0, 1, 2].all()
    wrong[0, 2:4, :, 2] = wrong[0, 1, 2] = False
    assert not wrong.any()


@pytest.mark.parametrize("flipped", [ALL, FEW])
def test_a_stale_answer_is_no_answer_of_a_timed_call(flipped: Flipped) -> None:
    opened = OpenedCase(CASES[0], REGISTRY.rule("scaled_dot"), 1, 1e9)
    for index in range(len(opened.families)):
        opened.score(PLAIN, index, {OUT: store(opened.draw(index).expected[OUT], "float32")})
    timed = len(opened.families)
    stale = {OUT: store(opened.draw(timed).expected[OUT], "float32")}
    assert opened.score_timed(timed, 0, stale) == ("", "")
    problem, _ = opened.score_timed(timed, 0, stale, flipped)
    assert "is above" in problem


def test_what_changes_is_drawn_where_it_can_be_judged() -> None:
    case = parse_case(CASES[0])
    drawn = {draw_flipped(case) for _ in range(200)}
    assert ALL in drawn
    assert len(drawn) > 20
    assert all(len(one.query) == 3 for one in drawn - {ALL})
    large = parse_case("attention/scaled_dot/B8-H16-L4096-D64/none/float32")
    assert not solves_a_query(large)
    assert {len(draw_flipped(large).query) for _ in range(40)} == {0}
    layer = parse_case("multihead/dot/B2-H2-L5-D4-E8/none/float32")
    backward = parse_case("attention/dot/B2-H2-L5-D4/none/float32/cpu/both")
    assert {draw_flipped(case) for case in (layer, backward) for _ in range(20)} == {ALL}
