"""Where the errors of an output are: one sentence that holds in all cases of a fault, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attnbench.testing.diagnosis_process import WrongPlaces

MOST_NAMED = 3

_WORDS = {"b": "batch element", "h": "head", "i": "row", "e": "feature"}
_WORST = re.compile(r"worst at \(([a-z]=[0-9]+(?:, [a-z]=[0-9]+)*)\)( \(i counts)?")


def places_in_words(places: Sequence[Mapping[str, WrongPlaces]], reasons: Sequence[str]) -> str:
    """Say where all errors are; "" where the cases have no place in common.

    places: of each case that got a close look, by the letter of the axis. reasons: of all failing cases; the
    worst error that one names lies in the place too, or the place is not said.
    """
    found = []
    worst = [_worst(reason) for reason in reasons]
    for letter, first in (places[0] if places else {}).items():
        own = [each.get(letter) for each in places]
        if any(one is None or one.wrong != first.wrong for one in own):
            continue
        if any(each[letter] not in first.wrong for each in worst if letter in each):
            continue
        size = f" of {first.size}" if all(one == first for one in own) else ""
        plural = "s" if len(first.wrong) > 1 else ""
        found.append(f"{_WORDS[letter]}{plural} {_numbers(first.wrong)}{size}")
    return f"All errors are in {' and '.join(found)}." if found else ""


def _worst(reason: str) -> dict[str, int]:
    """Return the indices of the worst error that a reason names, by letter."""
    found = _WORST.search(reason)
    if found is None:
        return {}
    indices = {word[0]: int(word[2:]) for word in found[1].split(", ")}
    if found[2]:
        # Not the row's own number, but that among the rows compared.
        del indices["i"]
    return indices


def _numbers(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if len(numbers) == last - first + 1 and len(numbers) > 1:
        return f"{first} to {last}"
    named = ", ".join(map(str, numbers[:MOST_NAMED]))
    return named if len(numbers) <= MOST_NAMED else f"{named}, …"
