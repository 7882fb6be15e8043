from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from brute_force import solve_by_loops
from hypothesis import given, settings
from hypothesis import strategies as st
from maths_tools import RULES, small_case, small_cases, wide_activations, wide_parameters

from attnbench.inputs.draw import Parameters
from attnbench.oracle import solve as oracle_weights
from attnbench.oracle.solve import solve, solve_weights
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask


def solved(case: Case, rows: np.ndarray | None = None) -> np.ndarray:
    return solve(case, RULES[case.rule], wide_parameters(case), wide_activations(case), rows)


@pytest.mark.parametrize("rule", sorted(RULES))
@settings(max_examples=20)
@given(data=st.data())
def test_agrees_with_loops_over_single_numbers(rule: str, data: st.DataObject) -> None:
    case = replace(data.draw(small_cases(largest=6)), rule=rule)
    expected = solve_by_loops(case, wide_parameters(case), wide_activations(case))
    np.testing.assert_allclose(solved(case), expected, rtol=0, atol=3e-13)


@given(small_cases(), st.data())
def test_some_rows_are_those_of_all_rows(case: Case, data: st.DataObject) -> None:
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, case.Lq - 1), min_size=1))))
    every, axis = solved(case), 2 if case.layer is None else 1
    np.testing.assert_allclose(solved(case, rows), np.take(every, rows, axis), rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_chunks_change_nothing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = small_case(rule, Lq=9, mask=Mask(explicit="float", padding="seeded"))
    whole = solved(case)
    monkeypatch.setattr(oracle_weights, "ELEMENTS_AT_ONCE", 2 * case.Lk)
    np.testing.assert_allclose(solved(case), whole, rtol=0, atol=1e-14)


@given(small_cases(multihead=False))
def test_weights_sum_to_one_less_the_sink_and_to_nothing_in_an_empty_row(case: Case) -> None:
    weights = solve_weights(case, RULES[case.rule], wide_parameters(case), wide_activations(case))
    assert weights.shape == (case.B, case.H, case.Lq, case.Lk)
    assert weights.min() >= 0
    total = weights.sum(axis=-1)
    empty = ~np.any(weights > 0, axis=-1)
    if case.rule == "sinks":
        assert total.max() < 1
    else:
        np.testing.assert_allclose(total[~empty], 1, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(solved(case)[empty], 0)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_row_without_keys_gives_zero(rule: str) -> None:
    case = small_case(rule, mask=Mask(padding=(7, 0), causal="lower_right"), Lq=9)
    out = solved(case)
    np.testing.assert_array_equal(out[1], 0)
    # Queries before the first key see none.
    np.testing.assert_array_equal(out[0, :, :2], 0)
    assert np.all(out[0, :, 2:] != 0)


def test_an_empty_row_of_a_layer_is_what_its_last_map_makes_of_zeros() -> None:
    case = small_case(layer=Layer(8, bias=True), mask=Mask(padding=(7, 0)))
    out = solved(case)
    np.testing.assert_array_equal(out[1], np.broadcast_to(wide_parameters(case).projections["b_o"], (5, 8)))


@pytest.mark.parametrize("rule", ["dot", "additive", "cosine", "alibi", "sinks"])
def test_a_float64_case_is_solved_in_something_wider(rule: str) -> None:
    case = small_case(rule, dtype="float64")
    out = solved(case)
    assert out.dtype == np.longdouble
    in_float64 = solve(
        replace(case, dtype="float32"), RULES[rule], wide_parameters(case), wide_activations(case)
    )
    assert in_float64.dtype == np.float64
    np.testing.assert_allclose(in_float64, out.astype(np.float64), rtol=0, atol=1e-14)
    if np.finfo(np.longdouble).eps < np.finfo(np.float64).eps:
        assert np.any(out != out.astype(np.float64)), "the whole way is in longdouble"


def test_no_square_is_held() -> None:
    case = small_case(B=1, H=1, Hkv=1, Lq=4096, Lk=4096, D=4, Dv=4, mask=Mask(causal="upper_left"))
    inputs, parameters = wide_activations(case), wide_parameters(case)
    tracemalloc.start()
    solve(case, RULES["scaled_dot"], parameters, inputs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4096 * 4096 * 8 / 2


def test_scores_beyond_exp_are_no_matter() -> None:
    case = small_case("dot", B=1, H=1, Hkv=1, Lq=1, Lk=3, D=1, Dv=1)
    q, k = np.array([[[[1.0]]]]), np.array([[[[1000.0], [998.0], [-1000.0]]]])
    v = np.array([[[[1.0], [2.0], [4.0]]]])
    out = solve(case, RULES["dot"], Parameters({}, {}), (q, k, v))
    e = np.exp(-2.0)
    np.testing.assert_allclose(out, [[[[(1 + 2 * e) / (1 + e)]]]], rtol=1e-15)


@pytest.mark.parametrize(("sink", "share"), [(1000.0, 0.0), (0.0, 0.5), (-1000.0, 1.0)])
def test_a_sink_of_any_size_takes_its_share(sink: float, share: float) -> None:
    case = small_case("sinks", B=1, H=1, Hkv=1, Lq=1, Lk=1, D=1, Dv=1)
    inputs = (np.zeros((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), np.full((1, 1, 1, 1), 8.0))
    out = solve(case, RULES["sinks"], Parameters({"sink": np.array([sink])}, {}), inputs)
    assert out.item() == 8 * share
