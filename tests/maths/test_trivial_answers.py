"""Answers without attention are refused in every case that tells anything."""

from __future__ import annotations

import numpy as np
import pytest
from judged import Judge
from maths_tools import RULES, small_case, tensor, wide_activations, wide_parameters

from attnbench.inputs.draw import draw_activations, widen
from attnbench.inputs.kinds import draw_stress_input, stress_inputs_of
from attnbench.masks import keep_rows
from attnbench.oracle.solve import solve, solve_weights
from attnbench.types.case import Case, Layer, output_shape
from attnbench.types.mask import Mask
from attnbench.verifier.trivial import TRIVIAL_ANSWERS, wrong_constants
from attnbench.verifier.trivial import trivial_answers as answers_of


def given_away(case: Case, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
    rule = RULES[case.rule]
    found = answers_of(case, rule, wide_parameters(case), draw_activations(case, rule, case.seed, 0), rows)
    return {name: widen(stored, case.dtype) for name, stored in found.items()}


def passing(case: Case) -> set[str]:
    """The trivial answers that no kind of inputs of the case refuses."""
    rule, left = RULES[case.rule], set(TRIVIAL_ANSWERS)
    for stress in stress_inputs_of(case, rule):
        judge = Judge(case, stress=stress)
        outputs = [
            answers_of(
                case, rule, wide_parameters(case), draw_stress_input(case, rule, stress, case.seed, index)
            )
            for index in range(len(judge.inputs))
        ]
        left = {name for name in left if not judge.verdict([tensor(o[name], case.dtype) for o in outputs])[1]}
        if not left:
            break
    return left


@pytest.mark.parametrize("mask", [Mask(), Mask(causal="lower_right", padding=(0, 5))], ids=str)
def test_what_they_are(mask: Mask) -> None:
    case = small_case(dtype="float64", Lq=9, Lk=11, mask=mask)
    sources = wide_activations(case)
    found, of_head = given_away(case), np.repeat(sources[2], case.group, axis=1)
    weights = solve_weights(case, RULES[case.rule], wide_parameters(case), sources)
    keep = keep_rows(case, np.arange(case.Lq))
    kept = np.broadcast_to(True if keep is None else keep, weights.shape)
    assert tuple(found) == TRIVIAL_ANSWERS
    assert not found["zeros"].any()
    for b, h, i in np.ndindex(weights.shape[:3]):
        values, seen = of_head[b, h], of_head[b, h, kept[b, h, i]]
        np.testing.assert_array_equal(found["first_value"][b, h, i], values[0])
        np.testing.assert_array_equal(found["own_value"][b, h, i], values[i + case.query_offset])
        np.testing.assert_allclose(found["mean"][b, h, i], values.mean(0))
        np.testing.assert_allclose(found["running_mean"][b, h, i], seen.mean(0) if len(seen) else 0)
        if len(seen):
            np.testing.assert_array_equal(found["nearest_value"][b, h, i], values[weights[b, h, i].argmax()])


@pytest.mark.parametrize(
    "layer", [None, Layer(6), Layer(6, bias=True, cross=True), Layer(6, out=False)], ids=str
)
@pytest.mark.parametrize("rule", ["scaled_dot", "concat_linear"])
def test_some_rows_are_those_of_all_and_shapes_are_those_of_outputs(rule: str, layer: Layer | None) -> None:
    case = small_case(rule, Lq=7, layer=layer, mask=Mask(causal="upper_left"))
    rows = np.array([1, 4, 6])
    whole, some = given_away(case), given_away(case, rows)
    for name in TRIVIAL_ANSWERS:
        assert whole[name].shape == output_shape(case)
        np.testing.assert_allclose(
            some[name], whole[name].take(rows, axis=2 if layer is None else 1), rtol=1e-6, atol=1e-6
        )


def test_they_equal_the_answer_where_there_is_one_key() -> None:
    for case in (small_case(Lk=1), small_case(Lq=1, mask=Mask(causal="upper_left"))):
        q, k, v = wide_activations(case)
        right = solve(case, RULES[case.rule], wide_parameters(case), (q, k, v))
        found = given_away(case)
        for name in ("first_value", "own_value", "running_mean", "nearest_value"):
            np.testing.assert_allclose(found[name], right, rtol=1e-6)
    assert passing(small_case(Lk=1)) == set(TRIVIAL_ANSWERS) - {"zeros"}
    assert passing(small_case(mask=Mask(padding=(0, 0)))) >= {"zeros", "running_mean"}


@pytest.mark.parametrize(("times", "tried"), [(1.04, False), (1.07, True)])
def test_a_default_within_5_percent_of_a_constant_is_no_wrong_one(times: float, tried: bool) -> None:
    constant = RULES["softcap"].constants[0]
    default = constant.default_of(small_case("softcap"))
    assert default is not None
    case = small_case("softcap", constants=((constant.name, times * default),))
    others = [dict(each.constants)[constant.name] for each in wrong_constants(case, RULES["softcap"])]
    assert (default in others) is tried


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_none_passes_where_queries_see_several_keys(rule: str, dtype: str) -> None:
    for mask in (Mask(), Mask(causal="upper_left"), Mask(padding="seeded")):
        assert passing(small_case(rule, dtype=dtype, mask=mask)) == set(), mask
