"""Orders are balanced: no contender gains from its place or from whom it follows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner.plan import balanced_orders, order_of_turns

SIZES = st.integers(0, 9)
ROUNDS = st.integers(0, 40)
SEEDS = st.integers(0, 2**32)
SAMPLES = st.dictionaries(st.sampled_from([f"backend{i}" for i in range(9)]), st.integers(1, 30))


def names(size: int) -> list[str]:
    return [f"backend{i}" for i in range(size)]


@given(SIZES, ROUNDS, SEEDS)
def test_every_round_has_every_contender_once(size: int, rounds: int, seed: int) -> None:
    orders = balanced_orders(names(size), rounds, Random(seed))
    assert len(orders) == rounds
    assert all(sorted(order) == names(size) for order in orders)


@given(st.integers(2, 9), SEEDS)
def test_no_contender_follows_itself_between_rounds(size: int, seed: int) -> None:
    orders = balanced_orders(names(size), 30, Random(seed))
    assert all(before[-1] != after[0] for before, after in pairwise(orders))


@given(st.integers(2, 8), SEEDS)
def test_places_are_balanced_over_a_whole_design(size: int, seed: int) -> None:
    rounds = size if size % 2 == 0 else 2 * size
    orders = balanced_orders(names(size), rounds, Random(seed))
    places = Counter((name, place) for order in orders for place, name in enumerate(order))
    # An order is turned round where a contender would follow itself, which unbalances places a little.
    assert max(places.values()) <= 2 * rounds // size
    assert sum(places.values()) == rounds * size


def test_who_follows_whom_is_balanced() -> None:
    """Over many designs each contender follows each other about equally often."""
    follows: Counter[tuple[str, str]] = Counter()
    for seed in range(200):
        for order in balanced_orders(names(4), 4, Random(seed)):
            follows.update(pairwise(order))
    assert len(follows) == 12
    assert max(follows.values()) < 1.25 * min(follows.values())


def test_the_same_seed_gives_the_same_orders() -> None:
    assert balanced_orders(names(5), 9, Random(3)) == balanced_orders(names(5), 9, Random(3))
    assert balanced_orders(names(5), 9, Random(3)) != balanced_orders(names(5), 9, Random(4))


@given(SAMPLES, SEEDS)
def test_everyone_has_as_many_turns_as_samples(samples: dict[str, int], seed: int) -> None:
    assert Counter(order_of_turns(samples, Random(seed))) == samples


@given(st.integers(2, 9), st.integers(1, 30), SEEDS)
def test_nobody_follows_itself_where_all_have_as_many_turns(size: int, each: int, seed: int) -> None:
    order = order_of_turns(dict.fromkeys(names(size), each), Random(seed))
    assert all(before != after for before, after in pairwise(order))
    rounds = [order[first : first + size] for first in range(0, len(order), size)]
    assert all(sorted(turns) == names(size) for turns in rounds)


@given(SAMPLES, SEEDS)
def test_a_contender_with_fewer_samples_is_spread_evenly(samples: dict[str, int], seed: int) -> None:
    """One with every turn there is counts the rounds; the other is never two rounds from where it belongs."""
    rounds = max(samples.values(), default=0) + 1
    order = order_of_turns({**samples, "clock": rounds}, Random(seed))
    so_far: Counter[str] = Counter()
    for turn in order:
        so_far[turn] += 1
        for name, count in samples.items():
            due = so_far["clock"] * count / rounds
            assert abs(so_far[name] - due) <= 1.5 + count / rounds, (name, so_far)


def test_of_two_samples_in_eight_rounds_one_is_in_either_half() -> None:
    for seed in range(20):
        order = order_of_turns({"a": 8, "b": 2}, Random(seed))
        rounds_of_b = [sum(name == "a" for name in order[:i]) for i, name in enumerate(order) if name == "b"]
        # In the third and the seventh, before or after the other's turn.
        assert rounds_of_b[0] in (2, 3)
        assert rounds_of_b[1] in (6, 7)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_in_turns_too_everyone_follows_everyone_about_equally_often(size: int) -> None:
    follows: Counter[tuple[str, str]] = Counter()
    first: Counter[str] = Counter()
    for seed in range(300):
        order = order_of_turns(dict.fromkeys(names(size), 6), Random(seed))
        follows.update(pairwise(order))
        first[order[0]] += 1
    assert len(follows) == size * (size - 1)
    assert max(follows.values()) < 1.25 * min(follows.values())
    assert max(first.values()) < 2 * min(first.values())


def test_two_contenders_alternate_and_either_may_begin() -> None:
    orders = {tuple(order_of_turns({"a": 5, "b": 5}, Random(seed))) for seed in range(40)}
    assert orders == {("a", "b") * 5, ("b", "a") * 5}


@given(SAMPLES, SEEDS)
def test_the_same_seed_gives_the_same_turns(samples: dict[str, int], seed: int) -> None:
    once, again = (order_of_turns(samples, Random(seed)) for _ in range(2))
    assert once == again


def test_another_seed_gives_other_turns() -> None:
    samples = dict.fromkeys(names(4), 5)
    assert len({tuple(order_of_turns(samples, Random(seed))) for seed in range(20)}) == 20


def test_nobody_has_no_turns() -> None:
    assert order_of_turns({}, Random(0)) == []
    assert order_of_turns({"a": 3}, Random(0)) == ["a"] * 3
