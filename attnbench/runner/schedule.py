"""In which order contenders take turns: random, and balanced over who follows whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from attnbench.types.sides import parts_of


def order_of_turns(
    samples: Mapping[str, int], rng: Random, *, balanced: bool = True, lockstep: bool = True
) -> list[str]:
    """The contenders of a stretch, one for each turn; each has as many turns as samples.

    Turns go in rounds. A contender with fewer samples than another takes part in rounds spread evenly.
    A backend's two sides follow each other in every round, now the one first and now the other: the nearer
    they are, the less the machine changes between them. Not balanced: the same order in every round. Not in
    lockstep: all turns of one contender in a row.
    """
    names = list(samples)
    rounds = max(samples.values(), default=0)
    if not lockstep:
        names = rng.sample(names, len(names)) if balanced else names
        return [name for name in names for _ in range(samples[name])]
    takes_part = {name: _spread(samples[name], rounds) for name in names}
    if not balanced:
        orders = [names] * rounds
    else:
        pairs = _by_backend(names)
        begins = {pair: rng.randrange(2) for pair in pairs}
        by_pair = balanced_orders(list(pairs), rounds, rng)
        orders = [
            [name for pair in order for name in _turned(pairs[pair], begins[pair] + _turns(pairs, number))]
            for number, order in enumerate(by_pair)
        ]
    return [name for number, order in enumerate(orders) for name in order if number in takes_part[name]]


def _by_backend(names: Sequence[str]) -> dict[str, list[str]]:
    """The contenders by backend: the sides of one together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(parts_of(name)[0], []).append(name)
    return found


def _turns(pairs: Mapping[str, Sequence[str]], number: int) -> int:
    """How often a pair is turned round before a round: a lone one never is, or a side would follow itself."""
    return number if len(pairs) > 1 else 0


def _turned(pair: Sequence[str], times: int) -> Sequence[str]:
    return pair if times % 2 == 0 else pair[::-1]


def _spread(count: int, rounds: int) -> frozenset[int]:
    """``count`` of the rounds, evenly apart, the same distance from both ends."""
    return frozenset((2 * place + 1) * rounds // (2 * count) for place in range(count))


def balanced_orders(contenders: Sequence[str], rounds: int, rng: Random) -> list[list[str]]:
    """``rounds`` orders of the contenders.

    Taken from Williams designs with the contenders' places drawn anew for each: within a design every
    contender stands in every place equally often and follows every other equally often. (Williams,
    Experimental designs balanced for the estimation of residual effects of treatments, 1949.)
    No contender follows itself from one round to the next where there are more than one: an order in which
    one would is turned round. That is worth more than the balance of places, which then holds only on
    average over sets, each of which draws its orders anew. Two contenders simply alternate within a stretch.
    """
    if not contenders:
        return [[] for _ in range(rounds)]
    orders: list[list[str]] = []
    while len(orders) < rounds:
        names = list(contenders)
        rng.shuffle(names)
        square = [[names[place] for place in row] for row in _williams(len(names))]
        rng.shuffle(square)
        for order in square:
            if orders and len(order) > 1 and orders[-1][-1] == order[0]:
                order.reverse()
            orders.append(order)
    return orders[:rounds]


def _williams(size: int) -> list[list[int]]:
    zigzag = [(place + 1) // 2 if place % 2 else (size - place // 2) % size for place in range(size)]
    rows = [[(place + shift) % size for place in zigzag] for shift in range(size)]
    return rows if size % 2 == 0 else rows + [row[::-1] for row in rows]
