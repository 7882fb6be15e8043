"""Orders are balanced: no contender gains from its place or from whom it follows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner.schedule import balanced_orders

SIZES = st.integers(0, 9)
ROUNDS = st.integers(0, 40)
SEEDS = st.integers(0, 2**32)


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
