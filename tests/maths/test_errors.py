from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maths_tools import small_case

from attnbench.inputs.draw import EPS, store, widen
from attnbench.inputs.kinds import stress_draws
from attnbench.types.case import Layer
from attnbench.verifier.errors import (
    Errors,
    Scale,
    Scatter,
    assumed_errors,
    compare,
    compare_wide,
    pool,
    rounded,
    scale_of,
)

numbers = st.floats(-100, 100)


def errors_of(pairs: list[tuple[float, float]]) -> Errors:
    columns = np.array(pairs).T.reshape(2, 1, 1, -1, 1)
    return compare(columns[0], columns[1], "float64")


@given(st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), min_size=1, max_size=5))
def test_errors_of_parts_and_of_the_whole_are_what_the_formulas_say(
    parts: list[list[tuple[float, float]]],
) -> None:
    pairs = [pair for part in parts for pair in part]
    each = [abs(a - b) for a, b in pairs]
    pooled, whole = pool([errors_of(part) for part in parts]), errors_of(pairs)
    for errors in (pooled, whole):
        assert errors.count == len(pairs)
        assert errors.rms == pytest.approx(np.sqrt(sum(e * e for e in each) / len(each)))
        assert errors.max_abs == abs(errors.got - errors.expected) == max(each)
        assert errors.not_finite == ""
    assert each[whole.worst[2]] == max(each)
    assert (whole.got, whole.expected) == pairs[whole.worst[2]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_no_number_is_named_and_left_out_of_the_sums(bad: float, dtype: str) -> None:
    expected = np.ones((1, 2, 3, 4))
    values = expected.copy()
    values[0, 1, 2, 3] = bad
    values[0, 0, 0, 0] = 1.5
    errors = compare_wide(widen(store(values, dtype), dtype), expected, "bhie")
    assert errors.not_finite == f"element (b=0, h=1, i=2, e=3) is not finite: got {bad}, expected 1"
    assert errors.count == 23
    assert errors.max_abs == 0.5
    assert errors.worst == (0, 0, 0, 0)


def test_int8_has_127_whole_steps_to_the_largest_of_a_row() -> None:
    rows = np.array([[127.0, -3.4, 3.6], [-2.54, 0.031, 0.0], [0.0, 0.0, 0.0]])
    held = np.array([[127.0, -3.0, 4.0], [-2.54, 0.04, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(rounded(rows, "int8"), held, rtol=1e-12)


def test_many_that_are_no_numbers_are_counted() -> None:
    errors = compare(np.full((1, 2, 5), np.nan, np.float32), np.zeros((1, 2, 5)), "float32")
    assert errors.not_finite == ("element (0, 0, 0) and 9 more are not finite: got nan, expected 0")
    assert (errors.count, errors.rms) == (0, 0.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_equals_what_is_no_number(value: float) -> None:
    both = np.full((1, 1, 1, 1), value)
    assert compare(both, both, "float64").not_finite


def test_pooling_keeps_the_first_that_is_no_number() -> None:
    fine, bad = (compare(np.full((1, 1, 1, 1), x), np.ones((1, 1, 1, 1)), "float64") for x in (1.0, np.nan))
    assert pool([fine, bad, fine]).not_finite == bad.not_finite


def test_float64_is_compared_in_something_wider() -> None:
    expected = np.ones((1, 1, 1, 1), np.longdouble) + np.longdouble(2) ** -60
    if expected[0, 0, 0, 0] == 1:
        pytest.skip("longdouble is no wider than float64 here")
    assert compare(np.ones((1, 1, 1, 1)), expected, "float64").max_abs == 2.0**-60


def test_other_shapes_cannot_be_compared() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(1, 2, 3, 4\) can't be compared with one of \(1, 2, 3, 5\)"
    ):
        compare(np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 3, 5)), "float64")


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [
        ({"B": 1, "H": 1, "Hkv": 1, "Lq": 1, "Dv": 1}, 16),
        ({"B": 1, "H": 1, "Hkv": 1, "Lq": 16, "Dv": 64}, 4),
        ({"B": 1, "H": 4, "Hkv": 1, "Lq": 16, "Dv": 63}, 2),
        ({"B": 8, "H": 8, "Hkv": 8, "Lq": 512, "Dv": 64}, 2),
        ({"B": 1, "H": 2, "Lq": 16, "Dv": 1, "layer": Layer(64)}, 4),
    ],
)
def test_as_many_draws_as_make_4096_elements(sizes: dict[str, object], draws: int) -> None:
    assert stress_draws(small_case(**sizes), "normal") == draws


def test_cases_that_share_draws_have_two_at_least() -> None:
    tiny, small = small_case(B=1, H=1, Hkv=1, Lq=1, Dv=1), small_case(B=1, H=1, Hkv=1, Lq=16, Dv=64)
    assert [stress_draws(tiny, "normal", share) for share in (1, 3)] == [16, 6]
    assert [stress_draws(small, "normal", share) for share in (1, 3)] == [4, 2]


def test_a_scale_is_that_of_all_numbers_however_small_and_of_none() -> None:
    found = scale_of([np.array([[0.25, -0.5]]), np.array([0.25])])
    assert found == Scale(pytest.approx((0.375 / 3) ** 0.5), 0.5, 3)
    assert scale_of([np.array([0.25, 0.125])]).largest == 0.25
    assert scale_of([np.zeros((0, 4))]) == Scale(0.0, 0.0, 0)


def test_without_a_reference_its_errors_are_gaps_of_the_output() -> None:
    exact = np.array([[3.0, -4.0]])
    for dtype, gaps in (("float32", 4), ("bfloat16", 1)):
        found = assumed_errors(exact, dtype)
        assert found.rms == pytest.approx(gaps * EPS[dtype] * 12.5**0.5)
        assert found.max_abs == pytest.approx(4 * found.rms)
        assert found.count == 2


@pytest.mark.parametrize(("off", "expected"), [(24, False), (25, True)])
def test_rounding_is_off_in_a_quarter_of_all_elements_or_more(off: int, expected: bool) -> None:
    rng = np.random.default_rng(1)
    before, after = np.zeros(100), np.zeros(100)
    before[:off], after[:off] = rng.choice([-1.0, 1.0], (2, off))
    scatter = Scatter()
    scatter.add(before, after, 0.5)
    assert scatter.is_rounding == expected
    scatter = Scatter()
    scatter.add(before, before, 0.5)
    assert not scatter.is_rounding, "the same errors on other inputs are wrong maths"
