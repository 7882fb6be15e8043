from __future__ import annotations

from itertools import combinations, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.covering import covering_rows


def pairs_of(values: dict[str, tuple[Any, ...]]) -> list[tuple[tuple[str, Any], tuple[str, Any]]]:
    return [
        ((left, a), (right, b))
        for left, right in combinations(values, 2)
        for a, b in product(values[left], values[right])
    ]


def covered(rows: list[dict[str, Any]], pair: tuple[tuple[str, Any], tuple[str, Any]]) -> bool:
    (left, a), (right, b) = pair
    return any(row[left] == a and row[right] == b for row in rows)


spaces = st.dictionaries(
    st.sampled_from("abcdef"), st.integers(1, 5).map(lambda n: tuple(range(n))), min_size=2
)


@given(spaces)
def test_every_pair_meets_and_rows_are_few(values: dict[str, tuple[int, ...]]) -> None:
    rows = covering_rows(values, lambda row: True)
    assert all(covered(rows, pair) for pair in pairs_of(values))
    assert all(list(row) == list(values) for row in rows)
    largest = sorted(map(len, values.values()))[-2:]
    assert largest[0] * largest[1] <= len(rows) <= 2 * largest[0] * largest[1]


def test_what_cannot_be_is_not_made_and_all_else_still_meets() -> None:
    values = {"a": (0, 1, 2), "b": (0, 1, 2), "c": (0, 1)}

    def possible(row: dict[str, Any]) -> bool:
        return not (row.get("a") == 0 and row.get("b") == 0)

    rows = covering_rows(values, possible)
    assert all(map(possible, rows))
    missed = [pair for pair in pairs_of(values) if not covered(rows, pair)]
    assert missed == [(("a", 0), ("b", 0))]


def test_the_same_rows_every_time() -> None:
    values = {"a": tuple("xyz"), "b": tuple("pqrs"), "c": tuple("uv")}
    assert covering_rows(values, lambda row: True) == covering_rows(values, lambda row: True)


def test_where_pairs_leave_the_choice_weights_decide() -> None:
    values = {"a": tuple(range(6)), "b": tuple(range(6)), "c": (0, 1)}
    rows = covering_rows(values, lambda row: True, {"c": (9, 1)})
    often = sum(row["c"] == 0 for row in rows)
    assert 6 <= len(rows) - often <= len(rows) // 3
