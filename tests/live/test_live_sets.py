"""How many sets a live comparison has."""

from __future__ import annotations

import pytest

from attnbench.compare.interval import sign_test
from attnbench.compare.verdict import FALSE_DISCOVERIES, LEVEL
from attnbench.live.measure import sets_for


@pytest.mark.parametrize(("cells", "sets"), [(1, 13), (20, 14), (27, 14), (28, 15), (77, 16)])
def test_golden_numbers(cells: int, sets: int) -> None:
    """14 of which one disagrees: 2 (1 + 14) / 2^14 = 0.00183, which is 0.05 / 27.3."""
    assert sets_for(cells) == sets


@pytest.mark.parametrize("cells", [1, 5, 20, 200])
def test_one_difference_is_told_though_a_set_disagrees_and_no_fewer_would_do(cells: int) -> None:
    def p_value(sets: int) -> float:
        return sign_test([0.1] * (sets - 1) + [-0.1])

    needed = min(LEVEL, FALSE_DISCOVERIES / cells)
    assert p_value(sets_for(cells)) <= needed < p_value(sets_for(cells) - 1)
