"""Where in an answer the errors are, in words: the shape of a mistake is half of what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

AXES: dict[int, tuple[str, ...]] = {
    4: ("batch element", "head", "row", "feature"),
    3: ("batch element", "row", "feature"),
}
MOST_NAMED = 3


def places(bad: NDArray[np.bool_], axes: Sequence[str] = ()) -> str:
    """Of which batch elements, heads, rows and features alone the wrong elements are; "" for all of them.

    bad: which elements are wrong, of an output (B, H, Lq, Dv) or (B, Lq, E).
    """
    axes = axes or AXES.get(bad.ndim, ())
    if not bad.any() or not axes:
        return ""
    found = []
    for axis, name in enumerate(axes):
        others = tuple(a for a in range(bad.ndim) if a != axis)
        wrong = np.flatnonzero(bad.any(axis=others))
        count = bad.shape[axis]
        if len(wrong) < count:
            found.append(f"{name}{'s' if len(wrong) > 1 else ''} {_numbers(wrong)} of {count}")
    return f"Wrong in {' and '.join(found)} alone." if found else ""


def _numbers(numbers: NDArray[Any]) -> str:
    first, last = int(numbers[0]), int(numbers[-1])
    if len(numbers) == last - first + 1 and len(numbers) > 1:
        return f"{first} to {last}"
    named = ", ".join(str(int(n)) for n in numbers[:MOST_NAMED])
    return named if len(numbers) <= MOST_NAMED else f"{named}, …"
