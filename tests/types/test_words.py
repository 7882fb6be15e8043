"""Words that messages, tables and the page have in common."""

from __future__ import annotations

import pytest

from attnbench.types.words import count_of


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (999, "999 cases"), (12_000, "12,000 cases")],
)
def test_things_are_counted_in_one_way(number: int, said: str) -> None:
    assert count_of(number, "case") == said
