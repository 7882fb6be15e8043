"""How many sets a live comparison has."""

from __future__ import annotations

import pytest

from attnbench.compare.interval import sign_test
from attnbench.compare.verdict import FALSE_DISCOVERIES, LEVEL
from attnbench.live.measure import sets_for


@pytest.mark.parametrize(("cells", "sets"), [(1, 17), (20, 17), (22, 18), (77, 20)])
def test_golden_numbers(cells: int, sets: int) -> None:
    """17 of which two disagree: 2 (1 + 17 + 136) / 2^17 = 0.00235, which is 0.05 / 21.3."""
    assert sets_for(cells) == sets


@pytest.mark.parametrize("cells", [1, 5, 20, 200])
def test_one_difference_is_told_though_two_sets_disagree_and_no_fewer_would_do(cells: int) -> None:
    def p_value(sets: int) -> float:
        return sign_test([0.1] * (sets - 2) + [-0.1] * 2)

    needed = min(LEVEL, FALSE_DISCOVERIES / cells)
    assert p_value(sets_for(cells)) <= needed < p_value(sets_for(cells) - 1)
