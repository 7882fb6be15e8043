"""How many sets a live comparison has."""

from __future__ import annotations

import pytest

from attnbench.live.measure import FEWEST_SETS, sets_for
from attnbench.stats.sign_test import LEVEL, sign_test
from attnbench.stats.verdict import FALSE_DISCOVERIES


@pytest.mark.parametrize(("cells", "sets"), [(1, 25), (1_000, 25), (32_000, 25), (33_000, 26)])
def test_golden_numbers(cells: int, sets: int) -> None:
    """25 of which one disagrees: 2 (1 + 25) / 2^25 = 1.55e-6, which is 0.05 / 32,263."""
    assert sets_for(cells) == sets


@pytest.mark.parametrize("cells", [1, 200, 40_000, 1_000_000])
def test_one_difference_is_told_though_a_set_disagrees_and_no_fewer_would_do(cells: int) -> None:
    def p_value(sets: int) -> float:
        return sign_test([0.1] * (sets - 1) + [-0.1])

    needed = min(LEVEL, FALSE_DISCOVERIES / cells)
    assert p_value(sets_for(cells)) <= needed
    assert sets_for(cells) == FEWEST_SETS or needed < p_value(sets_for(cells) - 1)
