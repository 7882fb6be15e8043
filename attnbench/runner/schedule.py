"""In which order contenders are measured: random, and balanced over who follows whom."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def balanced_orders(contenders: Sequence[str], rounds: int, rng: Random) -> list[list[str]]:
    """``rounds`` orders of the contenders.

    Taken from Williams designs with the contenders' places drawn anew for each: within a design every
    contender stands in every place equally often and follows every other equally often. (Williams,
    Experimental designs balanced for the estimation of residual effects of treatments, 1949.)
    No contender follows itself from one round to the next where there are more than one: an order in which
    one would is turned round. That is worth more than the balance of places, which then holds only on
    average over sets, each of which draws its orders anew. Two contenders keep one order within a set.
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
