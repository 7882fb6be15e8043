"""Pairwise covering: few rows in which every two values of different parameters meet.

Rows are made greedily, one at a time, in the manner of Cohen et al. (The AETG system, 1997). A row begins
with a pair that has not met yet. Each further parameter takes the value that meets most others for the first
time. Nothing is random, so the rows are the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
Item = tuple[str, int]
"""A parameter and the index of one of its values."""


def covering_rows(
    values: Mapping[str, Sequence[Any]],
    possible: Callable[[Row], bool],
    weights: Mapping[str, Sequence[float]] | None = None,
) -> list[Row]:
    """Make rows, with a value for every parameter, that cover every pair of values that can meet.

    values: of each parameter by name. possible: whether a row, whole or in part, is allowed. More values must
    not make a forbidden part allowed, and every allowed part must have an allowed whole. weights: how often
    to take each value of a parameter where pairs leave the choice; 1 by default.
    """
    missing = {
        frozenset(pair)
        for left, right in combinations(values, 2)
        for pair in product(_items(values, left), _items(values, right))
        if possible({name: values[name][i] for name, i in pair})
    }
    # A list, because sets have no order and rows must be reproducible.
    waiting = sorted(missing, key=lambda pair: sorted((list(values).index(name), i) for name, i in pair))
    used: Counter[Item] = Counter()
    rows = []
    for pair in waiting:
        if pair not in missing:
            continue
        chosen = _complete(dict(sorted(pair)), values, possible, missing, used, weights or {})
        missing -= {frozenset(two) for two in combinations(chosen.items(), 2)}
        used.update(chosen.items())
        rows.append({name: values[name][chosen[name]] for name in values})
    return rows


def _items(values: Mapping[str, Sequence[Any]], name: str) -> list[Item]:
    return [(name, i) for i in range(len(values[name]))]


def _complete(
    chosen: dict[str, int],
    values: Mapping[str, Sequence[Any]],
    possible: Callable[[Row], bool],
    missing: set[frozenset[Item]],
    used: Counter[Item],
    weights: Mapping[str, Sequence[float]],
) -> dict[str, int]:
    row = {name: values[name][i] for name, i in chosen.items()}
    # Parameters with many values have most pairs to cover, so they choose first.
    for name in sorted(values, key=lambda name: -len(values[name])):
        if name in chosen:
            continue
        candidates = []
        for i, value in enumerate(values[name]):
            if possible(row | {name: value}):
                meets = sum(frozenset(((name, i), other)) in missing for other in chosen.items())
                share = used[name, i] / (weights[name][i] if name in weights else 1)
                candidates.append((-meets, share, i))
        chosen[name] = min(candidates)[2]
        row[name] = values[name][chosen[name]]
    return chosen
