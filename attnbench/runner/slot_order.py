"""The order of candidates in the slots of a segment: drawn anew, so that it favours none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from attnbench.types.compared import parts_of


def order_of_slots(samples: Mapping[str, int], rng: Random) -> list[str]:
    """Return the candidate of each slot of a segment; each has as many slots as samples.

    Slots go in rounds. A candidate with fewer samples than another takes part in rounds spread evenly.
    The two sides of a backend follow each other in every round, in alternating order: the nearer they are,
    the less the machine changes between them.
    """
    rounds = max(samples.values(), default=0)
    takes_part = {name: _spread(count, rounds) for name, count in samples.items()}
    pairs: dict[str, list[str]] = {}
    for name in samples:
        pairs.setdefault(parts_of(name)[0], []).append(name)
    begins = {pair: rng.randrange(2) for pair in pairs}
    found: list[str] = []
    for number, order in enumerate(balanced_orders(list(pairs), rounds, rng)):
        for pair in order:
            # A lone pair keeps its order, or a side would follow itself.
            turned = begins[pair] + (number if len(pairs) > 1 else 0)
            names = pairs[pair][::-1] if turned % 2 else pairs[pair]
            found += [name for name in names if number in takes_part[name]]
    return found


def _spread(count: int, rounds: int) -> frozenset[int]:
    """Return ``count`` of the rounds, evenly apart, the same distance from both ends."""
    return frozenset((2 * place + 1) * rounds // (2 * count) for place in range(count))


def balanced_orders(candidates: Sequence[str], rounds: int, rng: Random) -> list[list[str]]:
    """Return ``rounds`` orders of the candidates.

    They come from Williams designs, with the candidates' places drawn anew for each: within a design every
    candidate stands in every place equally often and follows every other equally often. (Williams,
    Experimental designs balanced for the estimation of residual effects of treatments, 1949.)
    No candidate follows itself from one round to the next where there are more than one: such an order is
    reversed. That is worth more than the balance of places, which then holds only on average over
    repetitions, each of which draws its orders anew. Two candidates simply alternate within a segment.
    """
    orders: list[list[str]] = []
    while candidates and len(orders) < rounds:
        names = list(candidates)
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
