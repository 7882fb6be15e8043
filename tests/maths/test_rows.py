from __future__ import annotations

import numpy as np
import pytest
from maths_tools import RULES, small_case

from attnbench.oracle.solve import FEWEST_ROWS, choose_rows, row_flops
from attnbench.types.case import Case

RULE = RULES["scaled_dot"]


def chosen(case: Case, limit: float, seed: int = 0) -> np.ndarray | None:
    return choose_rows(case, RULE, limit, np.random.default_rng(seed))


def test_a_case_within_the_limit_is_solved_whole() -> None:
    case = small_case(Lq=1000)
    limit = 1000 * row_flops(case, RULE)
    assert chosen(case, limit) is None
    assert chosen(case, limit - 1) is not None


def test_first_last_and_block_edges_are_always_among_them() -> None:
    case = small_case(Lq=1000)
    for seed in range(20):
        rows = chosen(case, 100 * row_flops(case, RULE), seed)
        assert rows is not None
        assert {0, 999, 63, 64, 127, 128, 255, 256, 511, 512} <= set(rows.tolist())
        assert len(set(rows.tolist())) == 100
        assert rows.tolist() == sorted(rows)


def test_the_rest_is_random() -> None:
    case = small_case(Lq=1000)
    first, second = (chosen(case, 100 * row_flops(case, RULE), seed) for seed in (1, 2))
    assert first is not None
    assert second is not None
    assert 10 <= len(np.intersect1d(first, second)) < 50


@pytest.mark.parametrize("Lq", [1, 2, 15, 16, 17, 65, 1 << 16])
def test_a_few_rows_are_solved_at_any_price(Lq: int) -> None:
    rows = chosen(small_case(Lq=Lq), 1.0)
    assert rows is not None
    assert len(rows) == min(Lq, FEWEST_ROWS)
    assert rows[0] == 0
    assert rows[-1] == Lq - 1
    assert rows.dtype == np.intp


def test_float64_costs_more_and_additive_counts_its_own() -> None:
    assert row_flops(small_case(dtype="float64"), RULE) > 10 * row_flops(small_case(), RULE)
    case = small_case("additive")
    per_pair = 4 * case.D + 2 * case.Dv
    assert row_flops(case, RULES["additive"]) == case.B * case.H * case.Lk * per_pair
