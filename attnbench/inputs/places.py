"""Where the numbers of a batch lie in a draw: the case as its storage gets it, with a seed of its own.

Seeds follow from the entropy of the run, so that nobody knows the order of pages from the id of a case.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from attnbench.inputs.kinds import NORMAL
from attnbench.types.case import Case
from attnbench.types.problem import mixed
from attnbench.types.storage import storage_of

_SEEDS = 64
"""Seeds from which the draws of a check are chosen: some of each severity."""
_UNSHARED = 512
"""A storage that shares keys with so many seeds, one after the other, shares them always."""
_ORDER_BITS = 31


def change_in(order: int, random: int) -> int:
    """Return a change of timed inputs, not 0, which leaves numbers in the places of an order.

    order, random: of 31 and 30 random bits. Inputs of a repetition have the same order.
    """
    return order << _ORDER_BITS | 1 + random


def placed_case(
    case: Case, entropy: int, stress_inputs: tuple[str, ...], index: int, change: int = 0
) -> Case:
    """Return a case as its storage gets it for a draw, with a seed from the entropy of the run.

    The draws of the check become more severe, from the mildest to the worst that the storage has
    (:attr:`Storage.severity`), so that a kernel which is wrong on ordinary contents is not called one that
    reads NaN. Only sequences with ordinary numbers, and as they were drawn, have keys in common.

    stress_inputs: those of the draws of the check; the draws of timed calls follow. change: as of
    :func:`change_in`; 0 for none.

    Raises:
        ValueError: the storage shares keys with every seed.
    """
    storage = storage_of(case)
    if change or index >= len(stress_inputs):
        found = replace(case, seed=mixed(mixed(case.seed, entropy), 1 + _SEEDS + (change >> _ORDER_BITS)))
    else:
        found = _by_severity(case, entropy)[index * (_SEEDS - 1) // max(1, len(stress_inputs) - 1)]
        if stress_inputs[index] == NORMAL:
            return found
    severity = storage.severity(found)
    for _ in range(_UNSHARED):
        if storage.severity(found) == severity and not storage.shares(found):
            return found
        found = replace(found, seed=mixed(found.seed, 1))
    raise ValueError(f"the storage {storage.name} shares keys with each of {_UNSHARED} seeds")


@lru_cache(maxsize=8)
def _by_severity(case: Case, entropy: int) -> list[Case]:
    seeds = (mixed(mixed(case.seed, entropy), 1 + number) for number in range(_SEEDS))
    return sorted((replace(case, seed=seed) for seed in seeds), key=storage_of(case).severity)
