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
from attnbench.oracle.solve import FEWEST_ROWS, choose_rows, row_flops, solve
from attnbench.types.case import Case
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


RULE = RULES["scaled_dot"]


def chosen(case: Case, limit: float, seed: int = 0) -> np.ndarray | None:
    return choose_rows(case, RULES[case.rule], limit, np.random.default_rng(seed))


def test_a_case_within_the_limit_is_solved_whole() -> None:
    case = small_case(Lq=1000)
    limit = 1000 * row_flops(case, RULE)
    assert chosen(case, limit) is None
    assert chosen(case, limit - 1) is not None


def test_first_last_and_block_edges_are_always_among_them() -> None:
    case = small_case(Lq=1000)
    for seed in range(20):
        rows = chosen(case, 100 * row_flops(case, RULE), seed)
        assert {0, 999, 63, 64, 127, 128, 255, 256, 511, 512} <= set(rows.tolist())
        assert len(set(rows.tolist())) == 100
        assert rows.tolist() == sorted(rows)


def test_the_rest_is_random() -> None:
    case = small_case(Lq=1000)
    first, second = (chosen(case, 100 * row_flops(case, RULE), seed) for seed in (1, 2))
    assert 10 <= len(np.intersect1d(first, second)) < 50


@pytest.mark.parametrize("Lq", [1, 2, 15, 16, 17, 65, 1 << 16])
def test_a_few_rows_are_solved_at_any_price(Lq: int) -> None:
    rows = chosen(small_case(Lq=Lq), 1.0)
    assert len(rows) == min(Lq, FEWEST_ROWS)
    assert rows[0] == 0
    assert rows[-1] == Lq - 1
    assert rows.dtype == np.intp


def test_float64_costs_more_and_additive_counts_its_own() -> None:
    assert row_flops(small_case(dtype="float64"), RULE) > 10 * row_flops(small_case(), RULE)
    case = small_case("additive")
    per_pair = 4 * case.D + 2 * case.Dv
    assert row_flops(case, RULES["additive"]) == case.B * case.H * case.Lk * per_pair
