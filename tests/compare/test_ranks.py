from __future__ import annotations

from itertools import combinations
from math import comb, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.stats import ranks
from attnbench.stats.ranks import fewest_against, fewest_each, rank_test, ranked, shift

VALUES = st.lists(st.floats(-5, 5), min_size=1, max_size=7)


@pytest.mark.parametrize(
    ("base", "new", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([4, 5, 6], [1, 2, 3], 2 / 20),
        ([1, 2], [3, 4], 2 / 6),
        ([1, 3], [2, 4], 4 / 6),  # one of four pairs is the other way: U = 3 of 4, two of six arrangements
        ([1], [2], 1.0),
        (range(9), range(9, 18), 2 / comb(18, 9)),
        ([1, 2, 3], [1, 2, 3], 1.0),
        ([1, 1, 1], [1, 1, 2], 1.0),  # three pairs above, none below, six ties that count for nobody
        ([], [1, 2], 1.0),
        ([1, nan, 3], [4, 5, 6], 1.0),
        ([1, 2, 3], [4, 5, inf], 1.0),
    ],
)  # fmt: skip
def test_p_values_worked_out_by_hand(base: list[float], new: list[float], p: float) -> None:
    assert rank_test(base, new) == pytest.approx(p, rel=1e-12)


def by_counting(base: list[float], new: list[float]) -> float:
    """The p-value from all arrangements of as many ranks, one by one."""
    n, m = len(base), len(new)
    above = sum(y > x for y in new for x in base)
    below = sum(y < x for y in new for x in base)
    most = max(above, below)
    found = []
    for places in combinations(range(n + m), m):
        others = [place for place in range(n + m) if place not in places]
        found.append(sum(y > x for y in places for x in others))
    return min(1.0, 2 * sum(u >= most for u in found) / len(found))


@given(VALUES, VALUES)
def test_p_values_are_those_of_all_arrangements(base: list[float], new: list[float]) -> None:
    assert rank_test(base, new) == pytest.approx(by_counting(base, new), rel=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12, unique=True), st.integers(1, 11))
def test_without_ties_scipy_says_the_same(values: list[float], cut: int) -> None:
    from scipy.stats import mannwhitneyu

    base, new = values[:cut], values[cut:]
    if new:
        assert rank_test(base, new) == pytest.approx(mannwhitneyu(base, new, method="exact").pvalue)


def test_of_very_many_the_normal_law_takes_over_where_counting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = [i + 0.4 for i in range(60)], [i + 9.0 for i in range(60)]
    exact = rank_test(base, new)
    monkeypatch.setattr(ranks, "MOST_EXACT", 100)
    assert rank_test(base, new) == pytest.approx(exact, rel=0.05)


def test_the_shift_and_its_interval_by_hand() -> None:
    # Differences of [0, 1, 2] to [10, 12, 14]: 8, 9, 10, 10, 11, 12, 12, 13, 14.
    middle, interval = shift([0, 1, 2], [10, 12, 14], 0.9)
    assert middle == 11
    assert interval is not None
    assert (interval.low, interval.high) == (8, 14)
    assert interval.confidence == pytest.approx(1 - 2 / 20)
    assert shift([0, 1, 2], [10, 12, 14], 0.91) == (11, None)


def test_nine_and_nine_at_996_leave_out_nine_differences_on_either_side() -> None:
    base, new = [0.0] * 9, [float(2**i) for i in range(9)]
    middle, interval = shift(base, new, 0.996)
    assert middle == 16
    assert interval is not None
    # Of 81 differences each power stands nine times: the tenth is the second power.
    assert (interval.low, interval.high) == (2.0, 128.0)
    assert interval.confidence == pytest.approx(0.99601, abs=1e-5)


def test_no_interval_of_what_is_no_number() -> None:
    assert shift([0.0] * 9, [*range(8), inf])[1] is None
    assert shift([0.0] * 9, [*range(8), nan])[1] is None


@given(st.data())
def test_the_interval_leaves_out_nothing_exactly_where_the_test_refuses_it(data: st.DataObject) -> None:
    number = st.floats(-3, 3, allow_subnormal=False)
    many = st.lists(number, min_size=6, max_size=9, unique=True)
    base, new = data.draw(many), data.draw(many)
    if set(base) & set(new):
        return
    _, interval = shift(base, new, 1 - 0.004)
    assert interval is not None
    assert (interval.low > 0 or interval.high < 0) == (rank_test(base, new) <= 0.004)


@given(VALUES, VALUES)
def test_exchanging_the_sides_changes_signs_alone(base: list[float], new: list[float]) -> None:
    there, back = shift(base, new, 0.5), shift(new, base, 0.5)
    assert there[0] == pytest.approx(-back[0])
    assert (there[1] is None) == (back[1] is None)
    if there[1] is not None and back[1] is not None:
        assert (there[1].low, there[1].high) == (-back[1].high, -back[1].low)
    assert rank_test(base, new) == rank_test(new, base)


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.5, 0.9, 0.996]), st.data())
def test_many_pairs_at_once_are_each_as_they_are_alone(
    n: int, m: int, at_least: float, data: st.DataObject
) -> None:
    number = st.floats(-5, 5) | st.sampled_from([0.0, 1.0, 2.0])
    groups = st.tuples(*[st.lists(number, min_size=size, max_size=size) for size in (n, m)])
    several = data.draw(st.lists(groups, min_size=1, max_size=4))
    alone = [(*shift(base, new, at_least), rank_test(base, new)) for base, new in several]
    bases, news = [base for base, _ in several], [new for _, new in several]
    assert ranked(bases, news, at_least) == alone


def test_many_pairs_are_taken_in_parts_that_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bases, news = [[1.0, 2.0, 3.0 + i] for i in range(7)], [[4.0, 5.0, 6.0 * i] for i in range(7)]
    whole = ranked(bases, news, 0.9)
    monkeypatch.setattr(ranks, "_AT_ONCE", 20)
    assert ranked(bases, news, 0.9) == whole


def test_how_many_values_a_level_takes() -> None:
    assert fewest_each(0.004) == 6  # 2 of 924 arrangements; five each have 2 of 252
    assert fewest_against(6, 0.004) == 6
    assert fewest_against(9, 0.004) == 4  # 2 of 715
    assert fewest_against(1, 0.004) == 499
    assert fewest_each(1.0) == 1


@given(st.integers(1, 40), st.sampled_from([0.05, 0.004, 0.001]))
def test_with_fewer_than_that_not_even_all_agreeing_is_enough(others: int, level: float) -> None:
    needed = fewest_against(others, level)
    base = list(range(others))
    if needed + others < 200:
        assert rank_test(base, [1000 + i for i in range(needed)]) <= level
        if needed > 1:
            assert rank_test(base, [1000 + i for i in range(needed - 1)]) > level
